//! A TCP proxy.
/// m
pub struct Mode;
/// p
pub struct Proxy;
