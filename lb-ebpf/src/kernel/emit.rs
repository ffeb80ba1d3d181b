//! Sends a frame that the agent made (gratuitous ARP, resets): run by the agent through
//! BPF_PROG_TEST_RUN, so that it needs no raw socket and no CAP_NET_RAW. Never attached.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{TC_ACT_OK, TC_ACT_SHOT};
use aya_ebpf::helpers::generated::bpf_clone_redirect;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;

/// Sends the frame out of the interface whose index is in the mark.
#[classifier]
fn sluice_emit(ctx: TcContext) -> i32 {
    // SAFETY: the context is this run's own buffer; reading the mark is a context access.
    let (skb, ifindex) = unsafe {
        let skb = ctx.as_ptr().cast::<aya_ebpf::bindings::__sk_buff>();
        (skb, (*skb).mark)
    };
    // SAFETY: the helper clones the buffer and checks the interface.
    if unsafe { bpf_clone_redirect(skb, ifindex, 0) } == 0 {
        TC_ACT_OK
    } else {
        TC_ACT_SHOT
    }
}
