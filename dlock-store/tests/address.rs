//! No error and no `Debug` of an address shows a password, however its URL is misspelt.

use dlock_store::{Address, OptionRow, UrlBody, UrlForm};
use dlock_testkit::slips::{shows_secret, slips, spellings};
use dlock_testkit::text_of;

const OPTIONS: &[OptionRow] =
    &[OptionRow::new("pass", "a password"), OptionRow::one_of("doors", &["open"]), OptionRow::TLS];

static FORMS: [UrlForm; 4] = [
    UrlForm::new("a Cupboard URL", "cupboard://host", &["cupboard"], UrlBody::Hosts).options(OPTIONS),
    UrlForm::new("a Cupboard URL", "cupboard://host", &["cupboard"], UrlBody::HostsAfterLastAt).options(OPTIONS),
    UrlForm::new("a Cupboard URL", "cupboard://path", &["cupboard"], UrlBody::File).options(OPTIONS),
    UrlForm::new("a Cupboard URL", "cupboard://", &["cupboard"], UrlBody::Nothing),
];

/// `{}` is the password.
const URLS: [&str; 6] = [
    "cupboard://user:{}@a.example:1,[::1]:2/path?doors=open",
    "cupboard://:{}@h",
    "cupboard://h/path?pass={}&doors=open",
    "cupboard://h?doors={}&tls={}",
    "cupboard://h?x={}&{}",
    "{}://{}@{}:{}/{}#{}",
];

#[test]
fn no_slip_in_a_url_shows_its_password() {
    let (mut taken, mut refused) = (0, 0);
    for form in &FORMS {
        for (url, secret) in URLS.iter().flat_map(|url| spellings().map(|secret| (url, secret))) {
            let url = url.replace("{}", &secret);
            for slip in slips(&url).chain([url.clone()]) {
                let shown = match Address::parse(&slip, form) {
                    Ok(address) => {
                        taken += 1;
                        let read = address.read("pass", |_| None::<()>).err().map(|error| text_of(&error));
                        format!("{address:?} {address:#?} {read:?} {:?}", address.password())
                    }
                    Err(error) => {
                        refused += 1;
                        assert_eq!(error.kind().as_str(), "config_invalid");
                        text_of(&error)
                    }
                };
                assert!(!shows_secret(&shown), "{slip}: {shown}");
            }
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused: the slips do not reach both sides");
}
