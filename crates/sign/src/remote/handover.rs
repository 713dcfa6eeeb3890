//! First messages between client and signer. The client sends a greeting. The signer answers with a
//! shared memory file and a description of the connection.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use crate::key::Key;
use crate::scheme::Class;

/// Greeting of the client, with the version of the protocol.
const HELLO: &[u8; 8] = b"gwsign1\n";
/// Maximum time for the greeting and for the answer.
const WAIT: Duration = Duration::from_secs(2);
/// Maximum length of the description in bytes, which is enough for about 1500 RSA-4096 keys.
const TEXT_BYTES_MAX: usize = 2 << 20;
/// Largest number of slots in a ring.
pub(super) const SLOTS_MAX: usize = 4096;

/// Error while connecting to the signer.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The socket cannot be used.
    #[error("{}: {source}: start `godwit signer` with the same configuration first", socket.display())]
    Socket {
        /// Path of the socket.
        socket: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The signer does not serve this user.
    #[error("{}: the signer refuses user {uid}: set `user` to the user of the proxy in its configuration", socket.display())]
    User {
        /// Path of the socket.
        socket: PathBuf,
        /// User of this process.
        uid: u32,
    },
    /// The other side does not keep to the protocol.
    #[error("{}: no signer of this version answers: {reason}", socket.display())]
    Protocol {
        /// Path of the socket.
        socket: PathBuf,
        /// Reason.
        reason: &'static str,
    },
}

/// Description of a connection.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub(super) slots: usize,
    /// The signer's version of crypto_mb, or the reason why the library is not used.
    pub(super) lanes: String,
    /// Public halves of all keys.
    pub(super) keys: Vec<Arc<Key>>,
}

/// Answer to a greeting.
pub(super) enum Answer {
    Accepted(Description, OwnedFd),
    /// The signer does not serve the user of the client.
    Refused,
    /// The answer is invalid, for this reason.
    Invalid(&'static str),
}

/// Receives the greeting of a client.
pub(super) fn receive_hello(socket: &mut UnixStream) -> io::Result<()> {
    socket.set_read_timeout(Some(WAIT))?;
    socket.set_write_timeout(Some(WAIT))?;
    let mut hello = [0; HELLO.len()];
    socket.read_exact(&mut hello)?;
    if hello == *HELLO { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Sends the description of a connection with its memory file.
pub(super) fn send(socket: &mut UnixStream, description: &Description, memory: &OwnedFd) -> io::Result<()> {
    let mut text = format!("slots {}\nlanes {}\n", description.slots, description.lanes.replace('\n', " "));
    for key in &description.keys {
        let bytes: String = key.public_key().iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("key {} {bytes}\n", key.class().name());
    }
    let length = (text.len() as u32).to_le_bytes();
    let descriptors = [memory.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let sent = sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&length)], &rights, MsgFlags::empty(), None)?;
    if sent != length.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    socket.write_all(text.as_bytes())
}

/// Tells a client that its user is not served.
pub(super) fn refuse(socket: &mut UnixStream) -> io::Result<()> {
    socket.write_all(&u32::MAX.to_le_bytes())
}

/// Greets the signer and receives its answer.
pub(super) fn greet(socket: &mut UnixStream) -> io::Result<Answer> {
    socket.set_read_timeout(Some(WAIT))?;
    socket.set_write_timeout(Some(WAIT))?;
    // A signer that refuses this user may already have closed the socket. Its answer can still be
    // read.
    let sent = socket.write_all(HELLO);
    let mut length = [0; 4];
    let mut space = cmsg_space!(RawFd);
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    let received = {
        let mut parts = [IoSliceMut::new(&mut length)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_WAITALL;
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(found) = control {
                descriptors.extend(found.into_iter().map(own));
            }
        }
        message.bytes
    };
    let length = u32::from_le_bytes(length);
    if received != size_of::<u32>() {
        return Ok(Answer::Invalid("it closed the connection"));
    }
    if length == u32::MAX {
        return Ok(Answer::Refused);
    }
    sent?;
    let Some(memory) = descriptors.pop() else { return Ok(Answer::Invalid("it sent no shared memory")) };
    if length as usize > TEXT_BYTES_MAX {
        return Ok(Answer::Invalid("its description is too long"));
    }
    let mut text = vec![0; length as usize];
    socket.read_exact(&mut text)?;
    let description = std::str::from_utf8(&text).ok().and_then(parse);
    Ok(description.map_or(Answer::Invalid("its description is damaged"), |found| Answer::Accepted(found, memory)))
}

#[allow(unsafe_code, reason = "the kernel has just created the descriptor for this process")]
fn own(descriptor: RawFd) -> OwnedFd {
    // SAFETY: recvmsg returns new descriptors, which nothing else owns.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn parse(text: &str) -> Option<Description> {
    let mut lines = text.lines();
    let slots = lines.next()?.strip_prefix("slots ")?.parse().ok()?;
    let lanes = lines.next()?.strip_prefix("lanes ")?.to_owned();
    let key = |line: &str| {
        let (class, bytes) = line.strip_prefix("key ")?.split_once(' ')?;
        let class = Class::ALL.into_iter().find(|known| known.name() == class)?;
        let pairs = bytes.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        Some(Arc::new(Key::from_public(class, pairs.map(byte).collect::<Option<_>>()?)))
    };
    let keys = lines.map(key).collect::<Option<_>>()?;
    ((1..=SLOTS_MAX).contains(&slots)).then_some(Description { slots, lanes, keys })
}
