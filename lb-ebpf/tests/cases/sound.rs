//! Is a frame sound? By an independent parser (etherparse) and sums from scratch.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use super::packet::{Sum, sum};

/// Panics unless every length and checksum of the frame is right; the transport checksum as
/// `kind` says.
pub fn check(frame: &[u8], kind: Sum) {
    let parsed = SlicedPacket::from_ethernet(frame)
        .unwrap_or_else(|error| panic!("unsound frame: {error}\n{frame:02x?}"));
    let Some(NetSlice::Ipv4(ip)) = parsed.net else {
        assert!(matches!(parsed.net, Some(NetSlice::Arp(_))), "{parsed:?}");
        return;
    };
    let header = ip.header();
    assert_eq!(
        sum(header.slice()),
        0xffff,
        "IP header checksum: {frame:02x?}"
    );
    assert_ne!(header.ttl(), 0, "TTL");
    let total = usize::from(header.total_len());
    assert!(total <= frame.len() - 14, "total length {total}");
    let payload = &frame[14 + header.slice().len()..14 + total];
    assert_eq!(ip.payload().payload, payload);

    let (protocol, field) = match parsed.transport {
        Some(TransportSlice::Tcp(tcp)) => (6, tcp.checksum()),
        Some(TransportSlice::Udp(udp)) => {
            assert_eq!(usize::from(udp.length()), payload.len(), "UDP length");
            (17, udp.checksum())
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            assert_eq!(sum(icmp.slice()), 0xffff, "ICMP checksum: {frame:02x?}");
            return;
        }
        Some(TransportSlice::Icmpv6(_) | TransportSlice::Igmp(_)) | None => return,
    };
    let mut pseudo = [header.source(), header.destination()].concat();
    pseudo.extend([0, protocol]);
    pseudo.extend((payload.len() as u16).to_be_bytes());
    match kind {
        Sum::Full => {
            assert!(protocol == 6 || field != 0, "UDP without checksum");
            let all = [&pseudo, payload].concat();
            assert_eq!(sum(&all), 0xffff, "checksum {field:04x}: {frame:02x?}");
        }
        Sum::Partial => assert_eq!(field, sum(&pseudo), "partial checksum: {frame:02x?}"),
        Sum::None => assert_eq!(field, 0, "a checksum where none was"),
        Sum::Wrong(_) => {
            let all = [&pseudo, payload].concat();
            assert_ne!(sum(&all), 0xffff, "a damaged packet was mended");
        }
    }
}
