use super::*;
use dlock_contract::ErrorKind;

const MS: Duration = Duration::from_millis(1);

const fn options() -> Options {
    Options::DEFAULT
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let resolved = options().resolve(&Defaults::default()).unwrap();
    assert_eq!(resolved.ttl, Duration::from_secs(30));
    assert_eq!(resolved.wait, Wait::UpTo(Duration::from_secs(10)));
    assert_eq!(resolved.cadence, Some(Duration::from_secs(10)));
    assert_eq!(resolved.max_hold, Duration::from_secs(3600));
}

#[test]
fn contradictions_are_refused() {
    let second = Duration::from_secs(1);
    for (field, bad) in [
        ("ttl", Options { ttl: Some(Duration::ZERO), ..options() }),
        ("renew", Options { ttl: Some(second), renew: Some(Renew::Every(second)), ..options() }),
        ("renew", Options { renew: Some(Renew::Every(Duration::ZERO)), ..options() }),
        ("renew", Options { ttl: Some(second), renew: Some(Renew::Every(second * 2 / 3 + MS)), ..options() }),
        // Two thirds of the default ttl of 30 s are 20 s.
        ("renew", Options { renew: Some(Renew::Every(20 * second + MS)), ..options() }),
        ("attempts", Options { attempts: Some(0), ..options() }),
        ("max_hold", Options { ttl: Some(second), max_hold: Some(second / 2), ..options() }),
    ] {
        let error = bad.resolve(&Defaults::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field: named } if named == field), "{error}");
    }
    for bad in [
        Defaults { ttl: Duration::ZERO, ..Defaults::default() },
        Defaults { max_hold: second, ..Defaults::default() },
        Defaults { namespace: "a:b".into(), ..Defaults::default() },
        Defaults { max_waiters: 0, ..Defaults::default() },
    ] {
        assert!(bad.check().is_err());
    }
}

#[test]
fn renewal_can_be_off_or_at_a_stated_interval() {
    let off = Options { renew: Some(Renew::Off), ..options() };
    assert_eq!(off.resolve(&Defaults::default()).unwrap().cadence, None);
    let paced = Options { renew: Some(Renew::Every(Duration::from_secs(2))), ..options() };
    assert_eq!(paced.resolve(&Defaults::default()).unwrap().cadence, Some(Duration::from_secs(2)));
}

#[test]
fn a_renewal_is_due_after_two_thirds_of_the_ttl_at_the_latest() {
    let every = |time| Options { renew: Some(Renew::Every(time)), ..options() };
    let latest = Duration::from_secs(20);
    assert_eq!(every(latest).resolve(&Defaults::default()).unwrap().cadence, Some(latest));
    assert!(every(latest + Duration::from_nanos(1)).resolve(&Defaults::default()).is_err());
    // An interval that fits the ttl of the program need not fit the ttl that operations have chosen.
    let tuned = Defaults { ttl: Duration::from_secs(29), ..Defaults::default() };
    assert!(every(latest).resolve(&tuned).is_err());
}
