//! Reads the parameters, tables, flows and resources of a declaration.

use crate::declaration::{Declaration, FlowLimit, Flows, MeterUnit, Param, ParamShape, Resource, Shape, Table};
use crate::error::suggest;
use crate::head::{check_field_name, check_name};
use crate::layout::RecordLayout;
use crate::types::{FieldType, Scalar};
use crate::{Error, value};

use super::fields::scalars;
use super::meter;
use super::section::Section;

/// Maximum number of entries of a table or of flows.
const CAPACITY_MAX: u64 = 100_000_000;
/// Maximum size of a key, in bytes.
const KEY_BYTES_MAX: usize = 40;
/// Maximum size of a row, in bytes.
const ROW_BYTES_MAX: usize = 56;
/// Maximum number of rows in a `maglev` table, whose entries hold 16-bit row indices.
const MAGLEV_ROWS_MAX: u32 = 65_535;
/// Maximum number of elements of a list parameter.
const LIST_MAX: u64 = 4096;
/// Maximum number of tables of a function.
const TABLES_MAX: usize = 16;
/// Maximum number of resources of a function (`GW_FLOWS_POOLS` in `kernels/tables/flows.h`).
const RESOURCES_MAX: usize = 4;
/// Maximum duration of a timer, in seconds. It is one week.
const TIMER_MAX: u64 = 604_800;

/// Reads the TOML table `[params]` of a declaration.
pub(super) fn params(root: &mut Section<'_>) -> Result<Vec<Param>, Error> {
    let mut params = Vec::new();
    for (name, mut section) in root.sections("params")? {
        let line = section.line();
        let refuse = |message: String| Error { line, message: format!("params.{name}: {message}") };
        check_field_name(&name, "parameter").map_err(|error| Error::at(line, error))?;
        let kind = section.require_text("type")?;
        let max = section.number("max", LIST_MAX)?;
        let default = section.any("default").map(|entry| entry.literal("default")).transpose()?;
        let range = section.any("range").map(|entry| entry.pair("range")).transpose()?;
        let text = section.require_text("text")?;
        section.finish()?;
        let shape = match (kind.as_str(), kind.strip_suffix("[]")) {
            ("prefix4", _) => ParamShape::Prefix4,
            ("prefix6", _) => ParamShape::Prefix6,
            (_, Some(element)) => match (Scalar::parse(element), max) {
                (Some(scalar), Some(max)) if max > 0 => ParamShape::List(scalar, max as u32),
                (Some(_), _) => return Err(refuse("a list needs `max`, its largest number of elements".to_owned())),
                (None, _) => return Err(refuse(format!("unknown type `{element}`"))),
            },
            (scalar, None) => match Scalar::parse(scalar) {
                Some(scalar) => ParamShape::Scalar(scalar),
                None => {
                    let known =
                        ["u8", "u16", "u32", "u64", "ipv4", "ipv6", "mac", "port", "bool", "prefix4", "prefix6"];
                    return Err(refuse(format!("unknown type `{scalar}`: {}", suggest(scalar, &known))));
                }
            },
        };
        let param = Param { name: name.clone(), shape, default, range, text };
        if let Some(default) = &param.default {
            value::check_param(&param, default, None).map_err(|message| refuse(format!("default: {message}")))?;
        }
        params.push(param);
    }
    Ok(params)
}

/// Reads the TOML table `[tables]` of a declaration.
pub(super) fn tables(root: &mut Section<'_>) -> Result<Vec<Table>, Error> {
    let mut tables = Vec::new();
    for (name, mut section) in root.sections("tables")? {
        let line = section.line();
        let refuse = |message: String| Err(Error { line, message: format!("tables.{name}: {message}") });
        check_field_name(&name, "table").map_err(|error| Error::at(line, error))?;
        let shape_name = section.require_text("shape")?;
        let Some(shape) = Shape::ALL.into_iter().find(|shape| shape.name() == shape_name) else {
            return refuse(format!(
                "unknown shape `{shape_name}`: {}",
                suggest(&shape_name, &Shape::ALL.map(Shape::name))
            ));
        };
        let text = section.text("text")?.unwrap_or_default();
        let key = scalars(&mut section, "key")?;
        let row = if shape == Shape::Meter { meter::row() } else { scalars(&mut section, "row")? };
        let unit = if shape == Shape::Meter { meter::unit(&mut section)? } else { MeterUnit::default() };
        let capacity = section.number("capacity", CAPACITY_MAX)?.unwrap_or(1024) as u32;
        let rows = section.number("rows", CAPACITY_MAX)?.map_or(capacity, |rows| (rows as u32).min(capacity));
        section.finish()?;
        let has_key = matches!(shape, Shape::Exact | Shape::Acl | Shape::Meter);
        if has_key == key.is_empty() {
            let needs = if has_key { "needs" } else { "has no" };
            return refuse(format!("the shape `{shape_name}` {needs} `key`"));
        }
        if (shape == Shape::Strings) != row.is_empty() {
            let needs = if shape == Shape::Strings { "has no" } else { "needs" };
            return refuse(format!("the shape `{shape_name}` {needs} `row`"));
        }
        if capacity == 0 {
            return refuse("`capacity` must be at least 1".to_owned());
        }
        if shape == Shape::Maglev && capacity > MAGLEV_ROWS_MAX {
            return refuse(format!("`capacity` of a maglev table is at most {MAGLEV_ROWS_MAX}"));
        }
        let of_meter = || meter::refusal(&key, capacity).filter(|_| shape == Shape::Meter);
        if let Some(message) = sizes(&key, &row).or_else(of_meter) {
            return refuse(message);
        }
        tables.push(Table { name: name.clone(), shape, text, key, row, capacity, rows, unit });
    }
    match tables.get(TABLES_MAX) {
        Some(_) => root.refuse(format!("a function has at most {TABLES_MAX} tables")),
        None => Ok(tables),
    }
}

/// Returns a message if a key or a row is too large.
fn sizes(key: &[crate::Field], row: &[crate::Field]) -> Option<String> {
    for (fields, what, max) in [(key, "key", KEY_BYTES_MAX), (row, "row", ROW_BYTES_MAX)] {
        let bytes = RecordLayout::padded(fields).bytes;
        if bytes > max {
            return Some(format!("the {what} has {bytes} bytes, and at most {max} are possible"));
        }
    }
    None
}

/// Reads the TOML table `[flows.NAME]`, which a declaration may contain once.
pub(super) fn flows(root: &mut Section<'_>) -> Result<Option<Flows>, Error> {
    let mut all = root.sections("flows")?;
    if all.len() > 1 {
        return root.refuse("a function has at most one `[flows.NAME]`");
    }
    let Some((name, mut section)) = all.pop() else { return Ok(None) };
    let line = section.line();
    let refuse = |message: String| Err(Error { line, message: format!("flows.{name}: {message}") });
    check_field_name(&name, "flow state").map_err(|error| Error::at(line, error))?;
    let text = section.text("text")?.unwrap_or_default();
    let key = scalars(&mut section, "key")?;
    let reverse = scalars(&mut section, "reverse")?;
    let row = scalars(&mut section, "row")?;
    let counts = section.flag("count")?;
    let capacity = section.number("capacity", CAPACITY_MAX)?.unwrap_or(65_536) as u32;
    let mut timers = Vec::new();
    if let Some(mut table) = section.section("timeout")? {
        for entry in table.entries() {
            let timer = entry.name.clone();
            check_name(&timer, "timer").map_err(|error| Error::at(entry.line, error))?;
            timers.push((timer.clone(), entry.number(&format!("timeout.{timer}"), TIMER_MAX)? as u32));
        }
    }
    let limit = match section.section("limit")? {
        None => None,
        Some(mut limit) => {
            let (by, max) = (limit.require_text("by")?, limit.require_text("max")?);
            limit.finish()?;
            Some(FlowLimit { by, max })
        }
    };
    section.finish()?;
    if key.is_empty() {
        return refuse("`key` is missing".to_owned());
    }
    if capacity == 0 {
        return refuse("`capacity` must be at least 1".to_owned());
    }
    if timers.is_empty() || timers.iter().any(|(_, seconds)| *seconds == 0) || timers.len() > 8 {
        return refuse("`timeout` names one to eight timers, each with at least one second".to_owned());
    }
    if let Some(message) = sizes(&key, &row).or_else(|| sizes(&reverse, &[])) {
        return refuse(message);
    }
    Ok(Some(Flows { name, text, key, reverse, row, counts, capacity, timers, limit }))
}

/// Reads the TOML table `[resources]` of a declaration.
pub(super) fn resources(root: &mut Section<'_>) -> Result<Vec<Resource>, Error> {
    let mut resources = Vec::new();
    for (name, mut section) in root.sections("resources")? {
        let line = section.line();
        let refuse = |message: &str| Err(Error { line, message: format!("resources.{name}: {message}") });
        check_field_name(&name, "resource").map_err(|error| Error::at(line, error))?;
        let addresses = section.require_text("addresses")?;
        let ports = section.any("ports").map(|entry| entry.pair("ports")).transpose()?;
        let reverse = section.texts("reverse")?.unwrap_or_default();
        section.finish()?;
        let Some((first, last)) = ports.filter(|(first, last)| *last <= 65_535 && last - first >= 127) else {
            return refuse("`ports` must be [first, last] of at least 128 ports, because 128 buckets share them");
        };
        let [address, port] = &reverse[..] else {
            return refuse("`reverse` names the fields of the second key that hold the address and the port");
        };
        let reverse = (address.clone(), port.clone());
        resources.push(Resource { name: name.clone(), addresses, ports: (first as u16, last as u16), reverse });
    }
    Ok(resources)
}

/// Checks that all references to parameters and fields are valid. Also checks that no table shares
/// its name with a parameter or the flows.
pub(super) fn check(declaration: &Declaration) -> Result<(), Error> {
    let refuse = |message: String| Err(Error { line: declaration.line, message });
    let param = |name: &str| declaration.params.iter().find(|param| param.name == name);
    for table in &declaration.tables {
        if param(&table.name).is_some() {
            return refuse(format!("`{}` names a table and a parameter", table.name));
        }
    }
    if let Some(flows) = &declaration.flows {
        if let Some(limit) = &flows.limit {
            if !flows.key.iter().any(|field| field.name == limit.by) {
                return refuse(format!("flows.{}: the key has no field `{}`", flows.name, limit.by));
            }
            if !param(&limit.max).is_some_and(|param| matches!(param.shape, ParamShape::Scalar(Scalar::Unsigned(_)))) {
                return refuse(format!("flows.{}: `limit.max` must name a number of `[params]`", flows.name));
            }
        }
        if declaration.drops.is_empty() {
            return refuse(format!("flows.{}: packets without a flow need a drop reason", flows.name));
        }
        if !flows.reverse.is_empty() && declaration.resources.is_empty() {
            return refuse(format!(
                "flows.{}: a second key needs `[resources]`, whose ports lead to the worker of the flow",
                flows.name
            ));
        }
        if declaration.tables.iter().any(|table| table.name == flows.name) {
            return refuse(format!("`{}` names a table and flows", flows.name));
        }
    }
    if declaration.resources.len() > RESOURCES_MAX {
        return refuse(format!("a function has at most {RESOURCES_MAX} resources"));
    }
    for resource in &declaration.resources {
        let Some(flows) = &declaration.flows else {
            return refuse(format!("resources.{}: a function without `[flows]` has no resources", resource.name));
        };
        if !param(&resource.addresses).is_some_and(|param| matches!(param.shape, ParamShape::List(Scalar::Ipv4, _))) {
            return refuse(format!("resources.{}: `addresses` must name an `ipv4[]` of `[params]`", resource.name));
        }
        let field = |name: &str, bits: u32| {
            let found = flows.reverse.iter().find(|field| field.name == name);
            found.is_some_and(|field| matches!(field.kind, FieldType::Scalar(scalar) if scalar.bits() == bits))
        };
        if !field(&resource.reverse.0, 32) || !field(&resource.reverse.1, 16) {
            return refuse(format!(
                "resources.{}: `reverse` must name a field of 32 bits and one of 16 bits of the second key",
                resource.name
            ));
        }
    }
    Ok(())
}
