//! Stores and defaults from the environment.

use std::sync::Arc;
use std::time::Duration;

use dlock::{ErrorKind, Registry, Result, Wait};

fn connect(variables: &[(&str, &str)]) -> (Registry, Result<Vec<String>>) {
    let registry = Registry::new();
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
    let names = futures::executor::block_on(registry.connect_from(variables));
    (registry, names)
}

#[test]
fn the_future_of_connect_can_be_spawned() {
    fn send<T: Send>(_: &T) {}
    let registry = Registry::new();
    send(&registry.connect("m", "memory://"));
    send(&registry.connect_from_env());
}

#[test]
fn the_environment_names_stores_and_sets_defaults() {
    let (registry, names) = connect(&[
        ("DLOCK_URL_LOCAL", "memory://"),
        ("DLOCK_URL_OTHER", "memory://"),
        ("DLOCK_DEFAULT", "other"),
        ("DLOCK_NAMESPACE", "shop"),
        ("DLOCK_TTL", "1m30s"),
        ("DLOCK_WAIT", "none"),
        ("DLOCK_MAX_HOLD", "2h"),
        ("DLOCK_PORT", "not ours"),
    ]);
    assert_eq!(names.unwrap(), ["local", "other"]);
    let defaults = registry.defaults();
    assert_eq!(defaults.namespace, "shop");
    assert_eq!((defaults.ttl, defaults.wait), (Duration::from_secs(90), Wait::None));
    assert_eq!(defaults.max_hold, Duration::from_secs(7200));
    let [default, other] =
        [None, Some("other")].map(|name| futures::executor::block_on(registry.backend(name)).unwrap());
    assert!(Arc::ptr_eq(&default, &other));
}

#[test]
fn stores_of_the_environment_are_opened_at_once_or_lazily() {
    let down = ("DLOCK_URL_PAIR", "paired://?gate=nobody&authority=either");
    assert!(connect(&[down]).1.is_err());
    assert!(connect(&[down, ("DLOCK_CONNECT", "now")]).1.is_err());
    let (registry, names) = connect(&[down, ("DLOCK_CONNECT", "lazy"), ("DLOCK_DEFAULT", "pair")]);
    assert_eq!(names.unwrap(), ["pair"]);
    let error = registry.lock("job").acquire_blocking().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::BackendNotRegistered { .. }), "{error}");
    let error = connect(&[("DLOCK_CONNECT", "hunter2")]).1.unwrap_err();
    assert!(error.to_string().contains("DLOCK_CONNECT must be") && !error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn an_error_about_a_variable_names_it_and_does_not_echo_its_value() {
    for (variable, value) in
        [("DLOCK_TTL", "hunter2"), ("DLOCK_WAIT", "-1s"), ("DLOCK_MAX_HOLD", ""), ("DLOCK_NAMESPACE", "a b")]
    {
        let (_, names) = connect(&[(variable, value)]);
        let error = names.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
        assert!(!error.to_string().contains("hunter2"));
    }
    assert!(connect(&[("DLOCK_DEFAULT", "nobody")]).1.is_err());
    for (variable, text) in [
        ("DLOCK_TUNE", "hunter2"),
        ("DLOCK_TUNE", "hunter2 ttl=1s"),
        ("DLOCK_TUNE", "hunter2=ttl"),
        ("DLOCK_TUNE", "\"hunter2"),
        ("DLOCK_TTL", "hunter2s"),
        ("DLOCK_WAIT", "0s"),
        ("DLOCK_MAX_HOLD", "1M"),
    ] {
        let text = connect(&[(variable, text)]).1.expect_err(text).to_string();
        assert!(text.contains(variable) && !text.contains("hunter2") && !text.contains("1M"), "{text}");
    }
}

#[test]
fn a_start_that_failed_can_be_tried_again() {
    let registry = Registry::new();
    let again = |variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
        futures::executor::block_on(registry.connect_from(variables))
    };
    let (first, last) = (("DLOCK_URL_A", "memory://"), ("DLOCK_URL_B", "memory://"));
    let down = ("DLOCK_URL_B", "paired://?gate=nobody&authority=either");
    assert!(matches!(again(&[first, down]).unwrap_err().kind(), ErrorKind::BackendNotRegistered { .. }));
    assert!(again(&[first, last, ("DLOCK_DEFAULT", "nobody")]).is_err());
    assert!(again(&[first, down, ("DLOCK_CONNECT", "lazy"), ("DLOCK_DEFAULT", "nobody")]).is_err());
    assert_eq!(again(&[first, last, ("DLOCK_DEFAULT", "a")]).unwrap(), ["a", "b"]);
    drop(registry.lock("job").acquire_blocking().unwrap());
    // The stores of another call, or of the program, are not replaced.
    let error = again(&[("DLOCK_URL_0", "memory://"), first]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::AlreadyRegistered), "{error}");
    drop(registry.lock("job").acquire_blocking().unwrap());
}

/// A server that accepts and is silent keeps the call waiting for as long as the test wants.
#[test]
fn a_start_that_was_dropped_can_be_tried_again() {
    use futures::FutureExt;

    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let registry = Registry::new();
    let from = |second: String| {
        let variables = [("DLOCK_URL_A", "memory://".to_owned()), ("DLOCK_URL_B", second)];
        registry.connect_from(variables.into_iter().map(|(name, url)| (name.to_owned(), Some(url))))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let never = from(format!("redis://{}", silent.local_addr().unwrap()));
        assert!(never.now_or_never().is_none());
        assert_eq!(from("memory://".to_owned()).await.unwrap(), ["a", "b"]);
    });
}
