//! Shapes of functions that can be locked: each file compiles, and makes its futures without polling them.
//!
//! One test with many modules, since a test for each would be linked with all of the stores each time.

mod async_trait;
mod blanket_traits;
mod from_macro;
mod generics;
mod instrument;
mod kept;
mod lists;
mod methods;
mod moved_args;
mod no_prelude;
mod not_send;
mod options;
mod patterns;
mod returns;
mod services;
mod sync;
mod tokio_main;

fn install() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let memory = dlock::backends::memory::Memory::new();
        let installed = dlock::install("memory", memory).and_then(|()| dlock::set_default("memory"));
        assert!(installed.is_ok(), "{installed:?}");
    });
}

#[test]
fn every_shape_makes_a_future() {
    async_trait::make();
    from_macro::make();
    generics::make();
    instrument::make();
    kept::make();
    lists::make();
    methods::make();
    moved_args::make();
    no_prelude::make();
    not_send::make();
    options::make();
    patterns::make();
    returns::make();
    services::make();
    sync::make();
    tokio_main::make();
}
