//! Packets of the cases, built byte by byte and summed from scratch: nothing in here may come
//! from the code under test.

/// Hardware address of the node's uplink.
pub const NODE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The client's hardware address (or its router's).
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xc0];
/// Hardware address of the servers reached by full NAT.
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x21];

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;

/// What the transport checksum holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum {
    /// A finished checksum.
    Full,
    /// The pseudo-header's sum, to be finished by a device (CHECKSUM_PARTIAL).
    Partial,
    /// UDP's zero: none.
    None,
    /// A finished one that is off by this much: the packet was damaged before.
    Wrong(u16),
}

#[derive(Clone, Debug)]
pub enum L4 {
    Tcp {
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        options: Vec<u8>,
    },
    Udp,
    Icmp {
        kind: u8,
        code: u8,
        rest: [u8; 4],
    },
    Other(u8),
}

/// An IPv4 packet in an Ethernet frame.
#[derive(Clone, Debug)]
pub struct P {
    pub dst_mac: [u8; 6],
    pub src_mac: [u8; 6],
    pub src: ([u8; 4], u16),
    pub dst: ([u8; 4], u16),
    pub ttl: u8,
    pub tos: u8,
    pub id: u16,
    pub fragment: u16,
    pub ip_options: Vec<u8>,
    pub l4: L4,
    pub payload: Vec<u8>,
    pub sum: Sum,
    /// Zero bytes behind the packet, as short frames have them.
    pub padding: usize,
}

impl P {
    fn new(src: ([u8; 4], u16), dst: ([u8; 4], u16), l4: L4) -> Self {
        Self {
            dst_mac: NODE_MAC,
            src_mac: CLIENT_MAC,
            src,
            dst,
            ttl: 64,
            tos: 0,
            id: 0x1234,
            fragment: 0x4000,
            ip_options: vec![],
            l4,
            payload: vec![],
            sum: Sum::Full,
            padding: 0,
        }
    }

    pub fn tcp(src: ([u8; 4], u16), dst: ([u8; 4], u16), flags: u8, seq: u32, ack: u32) -> Self {
        let options = if flags & SYN == 0 {
            vec![]
        } else {
            // MSS 1460, SACK permitted, window scale 7.
            vec![2, 4, 5, 0xb4, 4, 2, 1, 1, 3, 3, 7, 1]
        };
        Self::new(
            src,
            dst,
            L4::Tcp {
                seq,
                ack,
                flags,
                window: 64240,
                options,
            },
        )
    }

    pub fn udp(src: ([u8; 4], u16), dst: ([u8; 4], u16)) -> Self {
        Self::new(src, dst, L4::Udp)
    }

    pub fn icmp(src: [u8; 4], dst: [u8; 4], kind: u8, code: u8, rest: [u8; 4]) -> Self {
        Self::new((src, 0), (dst, 0), L4::Icmp { kind, code, rest })
    }

    pub fn other(src: [u8; 4], dst: [u8; 4], protocol: u8) -> Self {
        Self::new((src, 0), (dst, 0), L4::Other(protocol))
    }

    #[must_use]
    pub fn from(mut self, address: [u8; 4], port: u16) -> Self {
        self.src = (address, port);
        self
    }

    #[must_use]
    pub fn to(mut self, address: [u8; 4], port: u16) -> Self {
        self.dst = (address, port);
        self
    }

    /// Destination first, as on the wire.
    #[must_use]
    pub fn macs(mut self, dst: [u8; 6], src: [u8; 6]) -> Self {
        self.dst_mac = dst;
        self.src_mac = src;
        self
    }

    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    #[must_use]
    pub fn data(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    #[must_use]
    pub fn sum(mut self, sum: Sum) -> Self {
        self.sum = sum;
        self
    }

    #[must_use]
    pub fn padded(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// Four bytes each: a router alert, then no-ops.
    #[must_use]
    pub fn ip_options(mut self, words: usize) -> Self {
        self.ip_options = [0x94, 4, 0, 0]
            .into_iter()
            .chain([1; 36])
            .take(words * 4)
            .collect();
        self
    }

    #[must_use]
    pub fn fragment(mut self, fragment: u16) -> Self {
        self.fragment = fragment;
        self
    }

    /// The payload gets two bytes more, such that the finished checksum equals the
    /// pseudo-header's sum: from outside a full and a partial field cannot be told apart.
    #[must_use]
    pub fn looking_partial(mut self) -> Self {
        assert_eq!(self.payload.len() % 2, 0);
        self.payload.extend([0, 0]);
        let at = self.payload.len() - 2;
        let (_, segment) = self.segment();
        let pseudo = self.pseudo(segment.len());
        // Wanted: pseudo + segment = !pseudo, so the two bytes are !pseudo - pseudo - segment.
        let lacking = fold(u32::from(!pseudo) + u32::from(!pseudo) + u32::from(!sum(&segment)));
        self.payload[at..].copy_from_slice(&lacking.to_be_bytes());
        let (offset, segment) = self.segment();
        let full = !fold(u32::from(pseudo) + u32::from(sum(&segment)));
        assert_eq!(full, pseudo, "offset {offset:?}");
        self
    }

    /// The payload gets two bytes more, such that the finished checksum is zero, which UDP must
    /// not say.
    #[must_use]
    pub fn summing_to_zero(mut self) -> Self {
        assert_eq!(self.payload.len() % 2, 0);
        self.payload.extend([0, 0]);
        let at = self.payload.len() - 2;
        let (_, segment) = self.segment();
        let lacking = !fold(u32::from(self.pseudo(segment.len())) + u32::from(sum(&segment)));
        self.payload[at..].copy_from_slice(&lacking.to_be_bytes());
        self
    }

    fn protocol(&self) -> u8 {
        match self.l4 {
            L4::Icmp { .. } => 1,
            L4::Tcp { .. } => 6,
            L4::Udp => 17,
            L4::Other(protocol) => protocol,
        }
    }

    fn pseudo(&self, len: usize) -> u16 {
        let mut bytes = [self.src.0, self.dst.0].concat();
        bytes.extend([0, self.protocol()]);
        bytes.extend((len as u16).to_be_bytes());
        sum(&bytes)
    }

    /// The transport checksum's field.
    pub fn checksum(&self) -> u16 {
        let at = 14 + 20 + self.ip_options.len() + self.segment().0.unwrap_or(0);
        let bytes = self.bytes();
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    }

    /// Transport header and payload with a checksum of zero, and where that is.
    fn segment(&self) -> (Option<usize>, Vec<u8>) {
        let mut bytes = vec![];
        let at = match &self.l4 {
            L4::Tcp {
                seq,
                ack,
                flags,
                window,
                options,
            } => {
                bytes.extend(self.src.1.to_be_bytes());
                bytes.extend(self.dst.1.to_be_bytes());
                bytes.extend(seq.to_be_bytes());
                bytes.extend(ack.to_be_bytes());
                bytes.extend([(5 + options.len() / 4) as u8 * 16, *flags]);
                bytes.extend(window.to_be_bytes());
                bytes.extend([0; 4]);
                bytes.extend(options);
                Some(16)
            }
            L4::Udp => {
                bytes.extend(self.src.1.to_be_bytes());
                bytes.extend(self.dst.1.to_be_bytes());
                bytes.extend((8 + self.payload.len() as u16).to_be_bytes());
                bytes.extend([0; 2]);
                Some(6)
            }
            L4::Icmp { kind, code, rest } => {
                bytes.extend([*kind, *code, 0, 0]);
                bytes.extend(rest);
                Some(2)
            }
            L4::Other(_) => None,
        };
        bytes.extend(&self.payload);
        (at, bytes)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let (at, mut segment) = self.segment();
        if let Some(at) = at {
            let pseudo = match self.l4 {
                L4::Icmp { .. } => 0,
                L4::Tcp { .. } | L4::Udp | L4::Other(_) => self.pseudo(segment.len()),
            };
            let full = !fold(u32::from(pseudo) + u32::from(sum(&segment)));
            let field = match self.sum {
                Sum::None => 0,
                Sum::Partial => pseudo,
                Sum::Full if full == 0 && matches!(self.l4, L4::Udp) => 0xffff,
                Sum::Full => full,
                Sum::Wrong(by) => fold(u32::from(full) + u32::from(by)),
            };
            segment[at..at + 2].copy_from_slice(&field.to_be_bytes());
        }
        let header_len = 20 + self.ip_options.len();
        let mut ip = vec![0x40 | (header_len / 4) as u8, self.tos];
        ip.extend(((header_len + segment.len()) as u16).to_be_bytes());
        ip.extend(self.id.to_be_bytes());
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([self.ttl, self.protocol(), 0, 0]);
        ip.extend(self.src.0);
        ip.extend(self.dst.0);
        ip.extend(&self.ip_options);
        let checksum = !sum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());

        let mut frame = [self.dst_mac, self.src_mac].concat();
        frame.extend([8, 0]);
        frame.extend(ip);
        frame.extend(segment);
        frame.extend(vec![0; self.padding]);
        frame
    }

    /// The bytes after a change that no header field of this type can express.
    pub fn patched(&self, patch: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = self.bytes();
        patch(&mut bytes);
        bytes
    }
}

/// An ARP message in a frame of its own.
#[derive(Clone, Copy, Debug)]
pub struct Arp {
    pub dst_mac: [u8; 6],
    pub src_mac: [u8; 6],
    pub sizes: [u8; 6],
    pub operation: u8,
    pub sender: ([u8; 6], [u8; 4]),
    pub target: ([u8; 6], [u8; 4]),
}

impl Arp {
    /// "Who has `target`?", asked by the client.
    pub fn ask(sender: [u8; 4], target: [u8; 4]) -> Self {
        Self {
            dst_mac: [0xff; 6],
            src_mac: CLIENT_MAC,
            sizes: [0, 1, 8, 0, 6, 4],
            operation: 1,
            sender: (CLIENT_MAC, sender),
            target: ([0; 6], target),
        }
    }

    /// Padded to the 60 bytes of a short frame on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = [self.dst_mac, self.src_mac].concat();
        frame.extend([8, 6]);
        frame.extend(self.sizes);
        frame.extend([0, self.operation]);
        frame.extend(self.sender.0);
        frame.extend(self.sender.1);
        frame.extend(self.target.0);
        frame.extend(self.target.1);
        frame.resize(60, 0);
        frame
    }
}

/// One's-complement sum of big-endian words (RFC 1071), folded.
pub fn sum(bytes: &[u8]) -> u16 {
    let mut total = 0u32;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn fold(mut total: u32) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}
