//! What to call a default route.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichRoute {
    /// No other interface carries one.
    Only,
    OneOfSeveral,
    /// The one of several that the kernel prefers.
    Best,
}

impl std::fmt::Display for WhichRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            WhichRoute::Only => "the default route",
            WhichRoute::OneOfSeveral => "a default route",
            WhichRoute::Best => "the default route of the lowest metric",
        })
    }
}
