//! The one place that promises a type is plain bytes: fixed size, no padding, every bit
//! pattern valid. `plain!` checks the size against the sum of the fields at compile time.

/// A type that may be copied from and to packet or map memory byte for byte.
///
/// # Safety
/// Implementors are `repr(C)`, have no padding and accept every bit pattern.
pub unsafe trait Plain: Copy + 'static {}

// SAFETY: integers and byte arrays have no padding and accept every bit pattern.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: an array of plain values is plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A copy of the value that `bytes` begins with; none where they are too few.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: as many bytes as T has are there, any bits are a T, and no alignment is asked for.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The value's bytes, as they stand in memory.
pub fn as_bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: a plain type has no padding, so all its bytes are initialised; they are borrowed
    // for as long as the value is.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Declares plain types: `plain!(Type = size; field types that add up to it);`
#[macro_export]
#[doc(hidden)]
macro_rules! plain {
    ($($ty:ty = $size:literal: $($field:ty),+;)+) => {$(
        const _: () = assert!(
            ::core::mem::size_of::<$ty>() == $size
                && 0 $(+ ::core::mem::size_of::<$field>())+ == $size,
            concat!(stringify!($ty), " has padding or another size than it says"),
        );
        // SAFETY: repr(C), and the assertion above leaves no room for padding; all fields are
        // plain themselves.
        unsafe impl $crate::abi::pod::Plain for $ty {}
        #[cfg(feature = "user")]
        // SAFETY: as above; this is aya's name for the same promise.
        unsafe impl ::aya::Pod for $ty {}
    )+};
}

#[cfg(test)]
mod tests {
    use super::{as_bytes, from_bytes};
    use crate::wire::eth::Ethernet;
    use crate::{Be16, Mac};

    #[test]
    fn values_come_back_from_their_bytes_at_any_alignment() {
        let header = Ethernet {
            dst: Mac([1, 2, 3, 4, 5, 6]),
            src: Mac([7, 8, 9, 10, 11, 12]),
            ethertype: Be16::new(0x0800),
        };
        let mut room = [0u8; 16];
        room[1..15].copy_from_slice(as_bytes(&header));
        assert_eq!(room[13..15], [8, 0]);
        assert_eq!(from_bytes(&room[1..]), Some(header));
        assert_eq!(from_bytes::<Ethernet>(&room[3..]), None);
    }
}
