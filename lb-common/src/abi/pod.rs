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
