//! ClientHello and ServerHello.

/// Fields of a hello message.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hello {
    /// Protocol version in the version field of the message.
    pub version: u16,
    /// Negotiated version. The version extension takes precedence over the version field.
    pub negotiated: u16,
    /// Random bytes of the message.
    pub random: [u8; 32],
    /// Cipher suites. A ServerHello has exactly one.
    pub ciphers: Vec<u16>,
    /// Extension types, in order.
    pub extensions: Vec<u16>,
    /// Host name (RFC 6066).
    pub server_name: Option<Vec<u8>>,
    /// Application protocols (RFC 7301).
    pub protocols: Vec<Vec<u8>>,
    /// Named groups.
    pub groups: Vec<u16>,
    /// Point formats.
    pub points: Vec<u8>,
    /// Signature algorithms.
    pub signatures: Vec<u16>,
    /// Versions that the client supports.
    pub versions: Vec<u16>,
}

/// Reader that consumes bytes from front to back.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn half(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Reads a vector that begins with its length in bytes. If the message ends too early, returns
    /// the remaining bytes.
    fn vector(&mut self, length_bytes: usize) -> Option<Self> {
        let length = self.take(length_bytes)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let length = length.min(self.0.len());
        self.take(length).map(Reader)
    }

    fn halves(self) -> Vec<u16> {
        self.0.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect()
    }
}

impl Hello {
    /// Parses the body of a ClientHello or ServerHello.
    pub(crate) fn parse(body: &[u8], client: bool) -> Option<Self> {
        let mut reader = Reader(body);
        let mut hello = Self { version: reader.half()?, ..Self::default() };
        hello.negotiated = hello.version;
        hello.random.copy_from_slice(reader.take(32)?);
        reader.vector(1)?;
        if client {
            hello.ciphers = reader.vector(2)?.halves();
            reader.vector(1)?;
        } else {
            hello.ciphers.push(reader.half()?);
            reader.take(1)?;
        }
        let Some(mut extensions) = reader.vector(2) else { return Some(hello) };
        while let Some(kind) = extensions.half() {
            let Some(data) = extensions.vector(2) else { break };
            hello.extensions.push(kind);
            hello.extension(kind, data, client);
        }
        Some(hello)
    }

    fn extension(&mut self, kind: u16, mut data: Reader<'_>, client: bool) {
        match kind {
            0 if client => {
                let Some(mut names) = data.vector(2) else { return };
                while let Some([0]) = names.take(1) {
                    let Some(name) = names.vector(2) else { return };
                    self.server_name = Some(name.0.to_vec());
                }
            }
            10 => self.groups = data.vector(2).map(Reader::halves).unwrap_or_default(),
            11 => self.points = data.vector(1).map(|points| points.0.to_vec()).unwrap_or_default(),
            13 => self.signatures = data.vector(2).map(Reader::halves).unwrap_or_default(),
            16 => {
                let Some(mut list) = data.vector(2) else { return };
                while let Some(protocol) = list.vector(1).filter(|protocol| !protocol.0.is_empty()) {
                    self.protocols.push(protocol.0.to_vec());
                }
            }
            43 if client => self.versions = data.vector(1).map(Reader::halves).unwrap_or_default(),
            43 => self.negotiated = data.half().unwrap_or(self.version),
            _ => {}
        }
    }
}
