//! Generates the JSON Schema of a function's configuration.

use serde_json::{Map, Value, json};

use crate::declaration::{Declaration, Param, ParamShape};
use crate::types::Scalar;

/// Returns the JSON Schema of a `[[function]]` table in the configuration.
pub fn schema(declaration: &Declaration) -> Value {
    let mut properties = Map::new();
    for key in ["name", "kind", "source", "impl"] {
        properties.insert(key.to_owned(), json!({ "type": "string" }));
    }
    properties.insert("device".to_owned(), json!({ "type": ["string", "array"], "items": { "type": "string" } }));
    if !declaration.params.is_empty() {
        let params: Map<String, Value> =
            declaration.params.iter().map(|param| (param.name.clone(), param_schema(param))).collect();
        let required: Vec<&str> = declaration
            .params
            .iter()
            .filter(|param| param.default.is_none())
            .map(|param| param.name.as_str())
            .collect();
        properties.insert(
            "params".to_owned(),
            json!({ "type": "object", "properties": params, "required": required, "additionalProperties": false }),
        );
    }
    if !declaration.tables.is_empty() {
        let file = |text: &str| json!({ "type": "string", "description": text });
        let tables: Map<String, Value> =
            declaration.tables.iter().map(|table| (table.name.clone(), file(&table.text))).collect();
        properties.insert(
            "tables".to_owned(),
            json!({ "type": "object", "properties": tables, "additionalProperties": false }),
        );
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": declaration.name,
        "description": declaration.summary,
        "type": "object",
        "properties": properties,
        "required": ["name", "kind"],
        "additionalProperties": false,
    })
}

fn param_schema(param: &Param) -> Value {
    let scalar = |scalar: Scalar| match scalar {
        Scalar::Unsigned(bits) => {
            let (low, high) = param.range.unwrap_or((0, u64::MAX >> (64 - u32::from(bits))));
            json!({ "type": "integer", "minimum": low, "maximum": high })
        }
        Scalar::Bool => json!({ "type": "boolean" }),
        _ => json!({ "type": "string" }),
    };
    let mut schema = match param.shape {
        ParamShape::Scalar(of) => scalar(of),
        ParamShape::Prefix4 | ParamShape::Prefix6 => json!({ "type": "string" }),
        ParamShape::List(of, max) => json!({ "type": "array", "items": scalar(of), "maxItems": max }),
    };
    schema["description"] = param.text.as_str().into();
    if let Some(default) = &param.default {
        schema["default"] = default.parse::<u64>().map_or_else(|_| default.as_str().into(), Value::from);
    }
    schema
}
