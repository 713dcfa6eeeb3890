//! Thin safe layer over the HTTP parser `suricata-htp`. It uses the C interface, because the Rust
//! interface is private.
#![allow(unsafe_code, reason = "suricata-htp exports only its C interface")]

use super::transaction::TxData;
use crate::app::Direction;
use libc::timeval;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null;
use std::sync::Arc;
use suricata_htp::HtpStatus;
use suricata_htp::bstr::Bstr;
use suricata_htp::c_api::{bstr, config as cfg, connection, connection_parser as conn, header, log, transaction as tx};
use suricata_htp::config::{Config as RawConfig, HtpServerPersonality};
use suricata_htp::connection_parser::{ConnectionParser, HtpStreamState};
use suricata_htp::log::HtpLogCode;
use suricata_htp::transaction::{Data, Transaction};

/// HTTP parser settings. Names and defaults follow Suricata's `libhtp.default-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Maximum number of nested encodings that are decompressed.
    pub layers_max: u32,
    /// Minimum decompressed size of a decompression bomb, in bytes. The decompressed data must also
    /// be many times larger than the compressed data.
    pub bomb_bytes: usize,
    /// Maximum decompression time per transaction, in microseconds.
    pub time_limit_micros: u32,
    /// Maximum length of a header line, in bytes.
    pub line_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { layers_max: 2, bomb_bytes: 1 << 20, time_limit_micros: 100_000, line_bytes_max: 18_000 }
    }
}

/// Configuration of HTTP parsers. Each parser keeps a clone, because it points to the
/// configuration.
#[derive(Clone)]
pub struct Config(Arc<OwnedConfig>);

struct OwnedConfig(*mut RawConfig);

// SAFETY: after `Config::new`, the configuration is only read.
unsafe impl Send for OwnedConfig {}
// SAFETY: as above.
unsafe impl Sync for OwnedConfig {}

impl Drop for OwnedConfig {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `htp_config_create`. No parser points to the
        // configuration, because each parser keeps a clone of its `Config`.
        unsafe { cfg::htp_config_destroy(self.0) }
    }
}

impl Config {
    /// Creates a configuration.
    pub fn new(options: &Options) -> Self {
        let raw = cfg::htp_config_create();
        // SAFETY: `raw` is a new configuration that nothing else uses.
        unsafe {
            cfg::htp_config_set_server_personality(raw, HtpServerPersonality::IDS);
            cfg::htp_config_set_convert_lowercase(raw, 0);
            cfg::htp_config_set_plusspace_decode(raw, 0);
            cfg::htp_config_set_normalized_uri_include_all(raw, false);
            cfg::htp_config_set_request_decompression(raw, 1);
            cfg::htp_config_set_allow_space_uri(raw, true);
            cfg::htp_config_set_field_limit(raw, options.line_bytes_max);
            cfg::htp_config_set_decompression_layer_limit(raw, options.layers_max as i32);
            cfg::htp_config_set_compression_bomb_limit(raw, options.bomb_bytes);
            cfg::htp_config_set_compression_time_limit(raw, options.time_limit_micros);
            cfg::htp_config_set_lzma_memlimit(raw, 1 << 20);
            cfg::htp_config_set_lzma_layers(raw, 1);
            cfg::htp_config_register_tx_create(raw, create);
            cfg::htp_config_register_tx_destroy(raw, destroy);
            cfg::htp_config_register_request_header_data(raw, request_headers);
            cfg::htp_config_register_request_trailer_data(raw, request_headers);
            cfg::htp_config_register_response_header_data(raw, response_headers);
            cfg::htp_config_register_response_trailer_data(raw, response_headers);
            cfg::htp_config_register_request_body_data(raw, request_body);
            cfg::htp_config_register_response_body_data(raw, response_body);
            cfg::htp_config_register_request_complete(raw, request_complete);
            cfg::htp_config_register_response_complete(raw, response_complete);
        }
        Self(Arc::new(OwnedConfig(raw)))
    }
}

unsafe extern "C" fn create(_request: bool) -> *mut c_void {
    Box::into_raw(Box::<TxData>::default()).cast()
}

unsafe extern "C" fn destroy(data: *mut c_void) {
    if !data.is_null() {
        // SAFETY: the pointer comes from `create`, and the parser passes it here once.
        drop(unsafe { Box::from_raw(data.cast::<TxData>()) });
    }
}

/// Returns the data of a transaction.
///
/// # Safety
/// `transaction` is null or valid, and no other reference to its data exists during `'a`.
unsafe fn data_of<'a>(transaction: *const Transaction) -> Option<&'a mut TxData> {
    // SAFETY: the caller guarantees a valid transaction, whose user data comes from `create`.
    unsafe { tx::htp_tx_get_user_data(transaction).cast::<TxData>().as_mut() }
}

/// Returns the bytes of a callback.
///
/// # Safety
/// `data` is valid during `'a`.
unsafe fn bytes_of<'a>(data: *const Data) -> &'a [u8] {
    // SAFETY: the caller guarantees valid data.
    let (bytes, length) = unsafe { (tx::htp_tx_data_data(data), tx::htp_tx_data_len(data)) };
    if bytes.is_null() || length <= 0 {
        return &[];
    }
    // SAFETY: the parser guarantees `length` readable bytes while the callback runs.
    unsafe { std::slice::from_raw_parts(bytes, length as usize) }
}

macro_rules! data_callback {
    ($name:ident, |$tx:ident, $data:ident, $bytes:ident, $hashed:ident| $body:expr) => {
        unsafe extern "C" fn $name(parser: *const ConnectionParser, data: *mut Data) -> HtpStatus {
            // SAFETY: the parser passes valid data of a live transaction, and calls back one
            // function at a time.
            let (raw, $bytes) = unsafe { (tx::htp_tx_data_tx(data), bytes_of(data)) };
            // SAFETY: the parser is valid. Its user data is a number, never an address.
            let $hashed = !unsafe { conn::htp_connp_user_data(parser) }.is_null();
            // SAFETY: as above.
            if let Some($data) = unsafe { data_of(raw) } {
                let $tx = Tx { raw, marker: std::marker::PhantomData };
                $body;
            }
            HtpStatus::OK
        }
    };
}

data_callback!(request_headers, |_tx, data, bytes, _hashed| data.add_headers(Direction::ToServer, bytes));
data_callback!(response_headers, |_tx, data, bytes, _hashed| data.add_headers(Direction::ToClient, bytes));
data_callback!(request_body, |tx, data, bytes, hashed| data.add_body(Direction::ToServer, &tx, bytes, hashed));
data_callback!(response_body, |tx, data, bytes, hashed| data.add_body(Direction::ToClient, &tx, bytes, hashed));

macro_rules! tx_callback {
    ($name:ident, $direction:expr) => {
        unsafe extern "C" fn $name(_parser: *const ConnectionParser, raw: *mut Transaction) -> HtpStatus {
            // SAFETY: the parser passes a live transaction, and calls back one function at a time.
            if let Some(data) = unsafe { data_of(raw) } {
                data.complete($direction);
            }
            HtpStatus::OK
        }
    };
}

tx_callback!(request_complete, Direction::ToServer);
tx_callback!(response_complete, Direction::ToClient);

/// Result of passing new data to the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// The parser accepts more data.
    Ok,
    /// The remaining data of the connection is not HTTP.
    Stop,
}

/// Parser of one connection.
pub(super) struct Connection {
    parser: *mut ConnectionParser,
    /// Keeps the configuration alive, to which the parser points.
    _config: Config,
}

// SAFETY: the parser is used only through references, and has no ties to a thread.
unsafe impl Send for Connection {}

static EPOCH: timeval = timeval { tv_sec: 0, tv_usec: 0 };

impl Connection {
    /// Returns a parser. If `hashed` is true, the parser computes file digests.
    pub(super) fn new(config: Config, client_port: u16, server_port: u16, hashed: bool) -> Self {
        // SAFETY: the result keeps the configuration until after the end of the parser. Null
        // addresses are allowed, and the timestamp is valid during the call.
        unsafe {
            let parser = conn::htp_connp_create(config.0.0);
            conn::htp_connp_set_user_data(parser, std::ptr::without_provenance_mut(usize::from(hashed)));
            conn::htp_connp_open(
                parser,
                null::<c_char>(),
                client_port.into(),
                null::<c_char>(),
                server_port.into(),
                &raw const EPOCH,
            );
            Self { parser, _config: config }
        }
    }

    /// Passes data to the parser, or reports `gap` missing bytes if `data` is `None`.
    pub(super) fn data(&mut self, direction: Direction, data: Option<&[u8]>, gap: usize) -> Status {
        let (bytes, length) = match data {
            Some([]) => return Status::Ok,
            Some(data) => (data.as_ptr().cast::<c_void>(), data.len()),
            None => (null(), gap),
        };
        // SAFETY: the parser is valid, and `bytes` is null (a gap) or valid for `length`.
        let state = unsafe {
            match direction {
                Direction::ToServer => conn::htp_connp_request_data(self.parser, &raw const EPOCH, bytes, length),
                Direction::ToClient => conn::htp_connp_response_data(self.parser, &raw const EPOCH, bytes, length),
            }
        };
        match state {
            HtpStreamState::ERROR | HtpStreamState::STOP | HtpStreamState::TUNNEL => Status::Stop,
            _ => Status::Ok,
        }
    }

    /// Ends one direction.
    pub(super) fn close(&mut self, direction: Direction) {
        // SAFETY: the parser is valid.
        unsafe {
            match direction {
                Direction::ToServer => conn::htp_connp_request_close(self.parser, &raw const EPOCH),
                Direction::ToClient => conn::htp_connp_close(self.parser, &raw const EPOCH),
            }
        }
    }

    /// Returns the number of transactions on the connection so far, including removed ones.
    pub(super) fn size(&self) -> usize {
        // SAFETY: the parser is valid.
        usize::try_from(unsafe { conn::htp_connp_tx_size(self.parser) }).unwrap_or(0)
    }

    /// Returns a transaction.
    pub(super) fn tx(&self, id: usize) -> Option<Tx<'_>> {
        // SAFETY: the parser is valid.
        let raw = unsafe { conn::htp_connp_tx(self.parser, id) };
        (!raw.is_null()).then_some(Tx { raw, marker: std::marker::PhantomData })
    }

    /// Returns a mutable reference to the data of a transaction.
    pub(super) fn tx_data(&mut self, id: usize) -> Option<&mut TxData> {
        let raw = self.tx(id)?.raw;
        // SAFETY: the transaction is valid, and `&mut self` excludes other references to its data.
        unsafe { data_of(raw) }
    }

    /// Removes a transaction.
    pub(super) fn remove(&mut self, id: usize) {
        // SAFETY: the parser is valid.
        unsafe { tx::htp_tx_destroy(self.parser, id) }
    }

    /// Returns the next message of the parser.
    pub(super) fn next_log(&mut self) -> Option<HtpLogCode> {
        // SAFETY: the parser and its connection are valid; the message is freed once.
        unsafe {
            let message = connection::htp_conn_next_log(conn::htp_connp_connection(self.parser));
            if message.is_null() {
                return None;
            }
            let code = log::htp_log_code(message);
            log::htp_log_free(message);
            Some(code)
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the parser is valid, and nothing uses it afterwards.
        unsafe { conn::htp_connp_destroy_all(self.parser) }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({} transactions)", self.size())
    }
}

/// Transaction of a connection.
#[derive(Clone, Copy)]
pub(super) struct Tx<'a> {
    raw: *const Transaction,
    marker: std::marker::PhantomData<&'a Connection>,
}

type Getter = unsafe extern "C" fn(*const Transaction) -> *const Bstr;

impl<'a> Tx<'a> {
    fn get(&self, getter: Getter) -> Option<&'a [u8]> {
        // SAFETY: the transaction is valid during `'a`.
        let string = unsafe { getter(self.raw) };
        if string.is_null() {
            return None;
        }
        // SAFETY: the string belongs to the transaction, which does not change during `'a`.
        unsafe {
            let (bytes, length) = (bstr::bstr_ptr(string), bstr::bstr_len(string));
            Some(if length == 0 { &[] } else { std::slice::from_raw_parts(bytes, length) })
        }
    }

    /// Returns the data of the transaction.
    pub(super) fn data(&self) -> Option<&'a TxData> {
        // SAFETY: the transaction is valid, and it is not changed during `'a`.
        unsafe { data_of(self.raw).map(|data| &*data) }
    }

    /// Returns the request line.
    pub(super) fn request_line(&self) -> Option<&'a [u8]> {
        self.get(tx::htp_tx_request_line)
    }

    /// Returns the method.
    pub(super) fn method(&self) -> Option<&'a [u8]> {
        self.get(tx::htp_tx_request_method)
    }

    /// Returns the URI as the client sent it.
    pub(super) fn uri_raw(&self) -> Option<&'a [u8]> {
        self.get(tx::htp_tx_request_uri)
    }

    /// Returns the normalised path and query.
    pub(super) fn uri(&self) -> Option<&'a [u8]> {
        self.get(tx::htp_tx_normalized_uri)
    }

    /// Returns the protocol of one direction.
    pub(super) fn protocol(&self, direction: Direction) -> Option<&'a [u8]> {
        match direction {
            Direction::ToServer => self.get(tx::htp_tx_request_protocol),
            Direction::ToClient => self.get(tx::htp_tx_response_protocol),
        }
    }

    /// Returns the lowercase host name of the request, without the port.
    pub(super) fn host(&self) -> Option<&'a [u8]> {
        self.get(tx::htp_tx_request_hostname)
    }

    /// Returns the response line.
    pub(super) fn response_line(&self) -> Option<&'a [u8]> {
        self.get(tx::htp_tx_response_line)
    }

    /// Returns the status code as text.
    pub(super) fn status(&self) -> Option<&'a [u8]> {
        self.get(tx::htp_tx_response_status)
    }

    /// Returns the text after the status code.
    pub(super) fn status_message(&self) -> Option<&'a [u8]> {
        self.get(tx::htp_tx_response_message)
    }

    /// Returns the parser progress in one direction: 1 for the start line, 2 for headers, 3 for the
    /// body, 4 for the trailer, and 5 for complete.
    pub(super) fn progress(&self, direction: Direction) -> u8 {
        // SAFETY: the transaction is valid.
        let progress = unsafe {
            match direction {
                Direction::ToServer => tx::htp_tx_request_progress(self.raw) as u8,
                Direction::ToClient => tx::htp_tx_response_progress(self.raw) as u8,
            }
        };
        progress.min(5)
    }

    /// Returns the value of the first header with this name.
    pub(super) fn header(&self, direction: Direction, name: &str) -> Option<&'a [u8]> {
        let name = CString::new(name).ok()?;
        // SAFETY: the transaction and the name are valid.
        let header = unsafe {
            match direction {
                Direction::ToServer => tx::htp_tx_request_header(self.raw, name.as_ptr()),
                Direction::ToClient => tx::htp_tx_response_header(self.raw, name.as_ptr()),
            }
        };
        if header.is_null() {
            return None;
        }
        // SAFETY: the header belongs to the transaction, which does not change during `'a`.
        unsafe { slice(header::htp_header_value_ptr(header), header::htp_header_value_len(header) as isize) }
    }

    /// Returns all header names and values in one direction.
    pub(super) fn headers(&self, direction: Direction) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        // SAFETY: the transaction is valid.
        let headers = unsafe {
            match direction {
                Direction::ToServer => tx::htp_tx_request_headers(self.raw),
                Direction::ToClient => tx::htp_tx_response_headers(self.raw),
            }
        };
        // SAFETY: the headers are null or valid.
        let count = if headers.is_null() { 0 } else { unsafe { header::htp_headers_size(headers) } };
        (0..usize::try_from(count).unwrap_or(0)).filter_map(move |index| {
            // SAFETY: the headers belong to the transaction, which does not change during `'a`.
            unsafe {
                let header = header::htp_headers_get_index(headers, index);
                if header.is_null() {
                    return None;
                }
                let name = slice(header::htp_header_name_ptr(header), header::htp_header_name_len(header))?;
                let value = slice(header::htp_header_value_ptr(header), header::htp_header_value_len(header) as isize)?;
                Some((name, value))
            }
        })
    }
}

/// Returns a slice of `length` bytes.
///
/// # Safety
/// `bytes` is null, or valid for `length` bytes during `'a`.
unsafe fn slice<'a>(bytes: *const u8, length: isize) -> Option<&'a [u8]> {
    match usize::try_from(length) {
        Ok(0) => Some(&[]),
        // SAFETY: the caller guarantees valid bytes.
        Ok(length) if !bytes.is_null() => Some(unsafe { std::slice::from_raw_parts(bytes, length) }),
        _ => None,
    }
}
