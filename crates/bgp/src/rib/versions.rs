//! Versions number the changes of a family in a shard, and wrap. They are compared by distance.

/// Older versions are renewed; a reader further behind must start over with a scan of everything.
pub const VERSION_AGE_MAX: u32 = 1 << 30;

/// Whether version `a` is later than `b`. They must be less than 2^31 changes apart.
#[inline]
pub const fn is_newer(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).wrapping_sub(1) < u32::MAX / 2
}
