//! Which of the default routes it is that an interface carries.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichRoute {
    /// No other interface carries one.
    Only,
    OneOfSeveral,
    /// The one of several that the kernel prefers.
    Best,
}
