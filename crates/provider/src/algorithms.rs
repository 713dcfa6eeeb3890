//! Tables of the algorithms that this provider implements.
//!
//! Programs select the signatures of this provider by their properties, with the query
//! `?godwit.sign=yes,?godwit.keys=no`. Keys then stay in OpenSSL's key management, and are exported
//! to this provider for signatures only.

use std::ffi::{CStr, c_int};
use std::ptr::null;

use crate::openssl::{Algorithm, OP_DECODER, OP_KEYMGMT, OP_SIGNATURE, Table};
use crate::{decoder, key, signature};

const RSA: &CStr = c"RSA:rsaEncryption:1.2.840.113549.1.1.1";
const EC: &CStr = c"EC:id-ecPublicKey:1.2.840.10045.2.1";
const ED25519: &CStr = c"ED25519:1.3.101.112";
const SIGNATURE: &CStr = c"provider=godwit,godwit.sign=yes";
const KEYS: &CStr = c"provider=godwit,godwit.keys=yes";
const DECODER: &CStr = c"provider=godwit,godwit.keys=yes,input=pem";

const fn algorithm(
    names: &'static CStr,
    properties: &'static CStr,
    functions: &'static [crate::openssl::Dispatch],
) -> Algorithm {
    Algorithm {
        names: names.as_ptr(),
        properties: properties.as_ptr(),
        functions: functions.as_ptr(),
        description: null(),
    }
}

static SIGNATURES: Table<Algorithm, 4> = Table([
    algorithm(RSA, SIGNATURE, &signature::FUNCTIONS.0),
    algorithm(c"ECDSA", SIGNATURE, &signature::FUNCTIONS.0),
    algorithm(ED25519, SIGNATURE, &signature::FUNCTIONS.0),
    Algorithm::END,
]);

static KEY_MANAGEMENT: Table<Algorithm, 4> = Table([
    algorithm(RSA, KEYS, &key::RSA.0),
    algorithm(EC, KEYS, &key::EC.0),
    algorithm(ED25519, KEYS, &key::ED25519.0),
    Algorithm::END,
]);

static DECODERS: Table<Algorithm, 4> = Table([
    algorithm(RSA, DECODER, &decoder::RSA.0),
    algorithm(EC, DECODER, &decoder::EC.0),
    algorithm(ED25519, DECODER, &decoder::ED25519.0),
    Algorithm::END,
]);

/// Returns the algorithms of an operation. The result is null if there are none.
pub(crate) fn of(operation: c_int) -> *const Algorithm {
    match operation {
        OP_SIGNATURE => SIGNATURES.0.as_ptr(),
        OP_KEYMGMT => KEY_MANAGEMENT.0.as_ptr(),
        OP_DECODER => DECODERS.0.as_ptr(),
        _ => null(),
    }
}
