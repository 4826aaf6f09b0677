//! Children.
