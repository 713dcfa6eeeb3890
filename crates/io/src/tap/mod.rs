//! Packet port for a TAP interface, through which the program exchanges packets with the network
//! stack of the kernel.
//!
//! The kernel receives the packets that the port sends to the interface. The port receives the
//! packets that the kernel sends to the interface. Other programs on this machine can use the
//! interface like a network card.
//!
//! The interface has one queue per worker. The kernel copies each frame, and each frame needs one
//! system call.

mod queue;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_packet::Region;
use serde::Deserialize;

use crate::live::{ArenaNeeds, Live, LiveContext, LivePort, Notice, SharedCounters};
use crate::{Error, PortCounters, QueueContext, Receive, Transmit};
use queue::{Receiver, Transmitter};

const CLONE_DEVICE: &str = "/dev/net/tun";
/// Maximum length of an interface name, in bytes.
const NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;

/// Configuration of a port with `kind = "tap"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the TAP interface. The port creates the interface if it does not exist, and then
    /// removes it at the end. It does not remove an interface that already exists, for example
    /// after `ip tuntap add NAME mode tap multi_queue`.
    pub interface: String,
}

impl Live for Config {
    fn needs(&self) -> ArenaNeeds {
        ArenaNeeds::default()
    }

    fn validate(&self) -> Result<(), Error> {
        let name = &self.interface;
        let is_valid = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'%';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_valid) || name == "." || name == ".."
        {
            let reason = format!("the name of an interface has 1 to {NAME_BYTES_MAX} letters and digits");
            return Err(Error::config("interface", name, reason));
        }
        Ok(())
    }

    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error> {
        let name = &self.interface;
        let queues = (0..context.workers).map(|_| attach(name, context.workers > 1)).collect::<io::Result<Vec<File>>>();
        let queues = queues.map_err(|source| Error::system(format!("open the tap interface {name}"), source))?;
        let queues = queues
            .into_iter()
            .map(|file| Arc::new(Queue { file, received: SharedCounters::default(), sent: SharedCounters::default() }));
        Ok(Arc::new(Port {
            queues: queues.collect(),
            stopped: Arc::default(),
            frame_bytes_max: context.frame_bytes_max,
            reported_down: Mutex::default(),
            name: name.clone(),
        }))
    }
}

/// The first fields of `struct ifreq`, which the ioctl TUNSETIFF reads.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: i16,
    pad: [u8; 22],
}

/// Opens one queue of the TAP interface.
fn attach(name: &str, multi_queue: bool) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(CLONE_DEVICE)?;
    let multi_queue = if multi_queue { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI | multi_queue) as i16;
    let mut request = Request { name: [0; libc::IFNAMSIZ], flags, pad: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF takes a `struct ifreq`. `Request` has the same size (40 bytes on 64-bit
    // machines), lives during the call, and its name ends with a zero byte.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}

/// One queue of the TAP interface, for the receive queue and the transmit queue of a worker.
struct Queue {
    file: File,
    received: SharedCounters,
    sent: SharedCounters,
}

struct Port {
    name: String,
    queues: Vec<Arc<Queue>>,
    stopped: Arc<AtomicBool>,
    frame_bytes_max: usize,
    /// Whether the interface was down at the last check. Only a change is reported.
    reported_down: Mutex<bool>,
}

impl LivePort for Port {
    fn receiver(&self, context: QueueContext, _region: &mut Region) -> Result<Box<dyn Receive>, Error> {
        let queue = Arc::clone(&self.queues[context.worker]);
        Ok(Box::new(Receiver::new(queue, context, Arc::clone(&self.stopped), self.frame_bytes_max)))
    }

    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error> {
        Ok(Box::new(Transmitter::new(Arc::clone(&self.queues[worker]))))
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    fn attend(&self) -> Vec<Notice> {
        let flags = std::fs::read_to_string(format!("/sys/class/net/{}/flags", self.name)).unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
        let is_down = flags & libc::IFF_UP as u32 == 0;
        let mut reported_down = self.reported_down.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *reported_down, is_down) == is_down {
            return Vec::new();
        }
        let name = &self.name;
        match is_down {
            true => {
                let remedy = format!("add its addresses and run `ip link set {name} up`");
                vec![("link_down", format!("interface {name} is down: {remedy}"))]
            }
            false => vec![("link_up", format!("interface {name} is up"))],
        }
    }

    fn is_up(&self) -> Option<bool> {
        Some(!*self.reported_down.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn counters(&self) -> PortCounters {
        let mut counters = PortCounters::default();
        for queue in &self.queues {
            counters += queue.received.read();
            counters += queue.sent.read();
        }
        counters
    }
}
