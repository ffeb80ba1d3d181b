//! Why a packet was passed, sent, answered, refused or dropped.
//!
//! One enum serves as the pipeline's return value and error, the index of the per-CPU
//! counters and the metric label. A reason has one outcome, so no verdict can contradict its
//! reason. `docs/reasons.md` tells operators what to do about each.

/// What happens to the packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// To the node's own stack.
    Pass,
    /// Out of the interface it came in by.
    Transmit,
    /// Out of another interface, already chosen.
    Redirect,
    /// Thrown away.
    Drop,
}

impl Outcome {
    /// Lower-case word for metrics and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Transmit => "transmit",
            Self::Redirect => "redirect",
            Self::Drop => "drop",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident = $label:literal, $outcome:ident;)+) => {
        /// Why a packet met its fate; see the module's documentation.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[must_use]
        #[repr(u32)]
        pub enum Reason { $($(#[$doc])+ $name,)+ }

        impl Reason {
            /// Every reason, in index order.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
            /// Number of reasons: the length of the counter array.
            pub const COUNT: usize = Self::ALL.len();

            /// From its index; one out of range counts as the last reason, a drop.
            #[inline(always)]
            pub const fn from_u32(index: u32) -> Self {
                match index {
                    $(index if index == Self::$name as u32 => Self::$name,)+
                    _ => Self::HalfEdited,
                }
            }

            /// The metric label.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $label,)+ }
            }

            /// What happens to a packet for this reason.
            #[inline(always)]
            pub const fn outcome(self) -> Outcome {
                match self { $(Self::$name => Outcome::$outcome,)+ }
            }
        }
    };
}

reasons! {
    /// Shorter than the headers it claims, and not for a VIP as far as can be seen.
    TooShort = "too_short", Pass;
    /// Neither ARP nor IPv4: VLAN-tagged frames, IPv6, LLDP and all else.
    OtherProtocol = "other_protocol", Pass;
    /// Destination is no VIP and no SNAT address.
    NotOurs = "not_ours", Pass;
    /// Frame for another station's hardware address (flooded by a switch).
    OtherStation = "other_station", Pass;
    /// ARP that is not a question for a VIP.
    OtherArp = "other_arp", Pass;
    /// Somebody else claims one of our VIPs in ARP.
    ArpConflict = "arp_conflict", Pass;

    /// Answered an ARP question for a VIP.
    AnsweredArp = "answered_arp", Transmit;
    /// Answered an echo request to a VIP.
    AnsweredEcho = "answered_echo", Transmit;
    /// ARP question for a VIP that this node must not answer now.
    VipNotOwned = "vip_not_owned", Drop;

    /// Established flow to an endpoint on this node.
    FlowLocal = "flow_local", Pass;
    /// Established flow to an endpoint by full NAT.
    FlowNat = "flow_nat", Transmit;
    /// Established flow by full NAT over another interface.
    FlowNatRedirect = "flow_nat_redirect", Redirect;
    /// Reply of an endpoint behind full NAT, back to the client.
    ReplyNat = "reply_nat", Transmit;
    /// The same, where the client is behind another interface.
    ReplyNatRedirect = "reply_nat_redirect", Redirect;

    /// First packet of a connection to an endpoint on this node.
    NewLocal = "new_local", Pass;
    /// First packet of a connection to an endpoint by full NAT.
    NewNat = "new_nat", Transmit;
    /// The same over another interface.
    NewNatRedirect = "new_nat_redirect", Redirect;
    /// A SYN seen before, sent to the endpoint it went to.
    RepeatedSyn = "repeated_syn", Pass;
    /// The same by full NAT.
    RepeatedSynNat = "repeated_syn_nat", Transmit;
    /// The same by full NAT over another interface.
    RepeatedSynNatRedirect = "repeated_syn_nat_redirect", Redirect;
    /// An endpoint refused a SYN; it went to another one on this node.
    FailoverLocal = "failover_local", Pass;
    /// An endpoint refused a SYN; it went to another one by full NAT.
    FailoverNat = "failover_nat", Transmit;
    /// The same over another interface.
    FailoverNatRedirect = "failover_nat_redirect", Redirect;
    /// The same, found in egress: back to the stack by way of the uplink's ingress.
    FailoverReinjected = "failover_reinjected", Redirect;
    /// An endpoint's answer to a handshake that another endpoint has answered already.
    AnswerTooLate = "answer_too_late", Drop;
    /// ICMP error about a handshake that is moved elsewhere: swallowed.
    SwallowedError = "swallowed_error", Drop;

    /// Reply of a local endpoint, given the VIP as its source.
    ReplyLocal = "reply_local", Pass;
    /// Egress packet that is no reply of ours.
    EgressOther = "egress_other", Pass;

    /// TCP to a VIP's port that no Service has: RST sent.
    RefusedPort = "refused_port", Transmit;
    /// UDP to a VIP's port that no Service has: port unreachable sent.
    RefusedUdpPort = "refused_udp_port", Transmit;
    /// No endpoint can take the connection: RST sent.
    RefusedNoEndpoint = "refused_no_endpoint", Transmit;
    /// No endpoint can take the datagram: port unreachable sent.
    RefusedUdpNoEndpoint = "refused_udp_no_endpoint", Transmit;
    /// Middle of a connection that nobody here knows: RST sent.
    RefusedUnknownFlow = "refused_unknown_flow", Transmit;
    /// The flow's endpoint is gone: RST sent.
    RefusedGone = "refused_gone", Transmit;
    /// The flow table is full: RST sent.
    RefusedTableFull = "refused_table_full", Transmit;

    /// A refusal or echo reply beyond the limit per second.
    RateLimited = "rate_limited", Drop;
    /// externalTrafficPolicy Local, and no endpoint here.
    NoLocalEndpoint = "no_local_endpoint", Drop;
    /// Client outside loadBalancerSourceRanges.
    SourceRange = "source_range", Drop;
    /// Every candidate's next hop is unresolved.
    NoNextHop = "no_next_hop", Drop;
    /// No SNAT port is free towards any candidate.
    SnatExhausted = "snat_exhausted", Drop;
    /// The reply tuple is taken on every candidate.
    TupleTaken = "tuple_taken", Drop;
    /// The flow table is full (UDP).
    TableFull = "table_full", Drop;
    /// The handshake table refused an entry.
    HandshakeTable = "handshake_table", Drop;
    /// RST of a connection that nobody here knows.
    UnknownRst = "unknown_rst", Drop;

    /// To a VIP: header length under 20 or past the end.
    BadHeaderLength = "bad_header_length", Drop;
    /// To a VIP: total length past the frame or under the header.
    BadTotalLength = "bad_total_length", Drop;
    /// To a VIP: TCP data offset under 5 or past the end.
    BadDataOffset = "bad_data_offset", Drop;
    /// To a VIP: no room for the transport header.
    TruncatedTransport = "truncated_transport", Drop;
    /// To a VIP: a fragment, first or later.
    Fragment = "fragment", Drop;
    /// To a VIP: ICMP other than an echo request.
    Icmp = "icmp", Drop;
    /// To a VIP: neither TCP, UDP nor ICMP.
    UnsupportedProtocol = "unsupported_protocol", Drop;
    /// Forwarding would take the time to live to zero.
    TtlExceeded = "ttl_exceeded", Drop;
    /// Source address that no client can have (a VIP of ours, multicast, broadcast).
    BadSource = "bad_source", Drop;
    /// A refusal of an endpoint whose checksum is wrong.
    BadChecksum = "bad_checksum", Drop;
    /// The kernel refused to change the frame's length.
    CannotResize = "cannot_resize", Drop;
    /// Too long to complete a checksum that a virtual link left open.
    TooLongToSum = "too_long_to_sum", Drop;
    /// A write failed past the checks: never sent half edited.
    HalfEdited = "half_edited", Drop;
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn labels_are_unique_and_indexes_dense() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            let same = Reason::ALL
                .iter()
                .filter(|r| r.as_str() == reason.as_str())
                .count();
            assert_eq!(same, 1, "{}", reason.as_str());
        }
    }
}
