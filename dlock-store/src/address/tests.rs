use super::*;
use crate::address::tls::{Tls, TlsMode};

const SERVERS: UrlForm =
    UrlForm::new("a Cupboard URL", "cupboard://[user:password@]host", &["cupboard", "cupboard+unix"], UrlBody::Hosts)
        .options(&[
            OptionRow::TLS,
            OptionRow::CA,
            OptionRow::CERT,
            OptionRow::KEY,
            OptionRow::new("ttl_class", "a duration such as 5s"),
            OptionRow::one_of("doors", &["open", "closed"]),
            OptionRow::new("mode", "the rights of the socket").only_for(&["cupboard+unix"]),
        ])
        .elsewhere(&[("ssl", "write tls instead")]);
const LENIENT: UrlForm = UrlForm::new("a Drawer URL", "drawer://host", &["drawer"], UrlBody::HostsAfterLastAt);
const FILE: UrlForm = UrlForm::new("a Shelf URL", "shelf://path", &["shelf"], UrlBody::File)
    .options(&[OptionRow::one_of("shared", &["allow"])]);
const NOTHING: UrlForm = UrlForm::new("a Box URL", "box://", &["box"], UrlBody::Nothing);

fn read(url: &str) -> Result<Address> {
    Address::parse(url, &SERVERS)
}

fn text(result: Result<Address>) -> String {
    result.unwrap_err().to_string()
}

fn account(address: &Address) -> (Option<&str>, Option<&str>) {
    (address.user(), address.password().map(Secret::reveal))
}

#[test]
fn all_parts_are_read_and_decoded() {
    let url = "CUPBOARD://us%40er:p%2C%3A%2F%C3%A9@a.example:1,[::1]:2,10.0.0.3/my%20name/3/?ca=x%26y+z&doors=open \n";
    let address = read(url).unwrap();
    assert_eq!(address.scheme(), "cupboard");
    assert_eq!(account(&address), (Some("us@er"), Some("p,:/é")));
    let hosts: Vec<_> = address.hosts().iter().map(|host| host.or_port(9)).collect();
    assert_eq!(hosts, [("a.example".into(), 1), ("::1".into(), 2), ("10.0.0.3".into(), 9)]);
    assert_eq!(address.path(), ["my name", "3"]);
    assert_eq!((address.option("ca"), address.option("doors")), (Some("x&y+z"), Some("open")));
    assert_eq!((address.option("cert"), address.option("none")), (None, None));
}

#[test]
fn any_part_but_the_scheme_may_be_missing() {
    for (url, hosts, user, password) in [
        ("cupboard://", 0, None, None),
        ("cupboard:///a/b", 0, None, None),
        ("cupboard+unix:///a/b?mode=6", 0, None, None),
        ("cupboard://h?", 1, None, None),
        ("cupboard://me@h", 1, Some("me"), None),
        ("cupboard://me:@h", 1, Some("me"), None),
        ("cupboard://:pw@h", 1, None, Some("pw")),
        ("cupboard://:a:b@h/p@q?ca=/a@b", 1, None, Some("a:b")),
        ("cupboard://@h", 1, None, None),
    ] {
        let address = read(url).unwrap();
        assert_eq!((address.hosts().len(), account(&address)), (hosts, (user, password)), "{url}");
    }
}

/// ZooKeeper's Java client takes a path after each host. Read as one path, the second host would never be used.
#[test]
fn all_hosts_stand_before_the_path() {
    for bad in ["h:1/a,g:1/a", "h/a,g", "h/a/b:1", "h/http://g"] {
        let error = read(&format!("cupboard://{bad}")).unwrap_err().to_string();
        assert!(error.contains("all hosts stand before the path") && !error.contains(bad), "{error}");
    }
    assert_eq!(read("cupboard://h:1,g:1/a%2Cb%3A1").unwrap().path(), ["a,b:1"]);
}

#[test]
fn a_host_is_a_name_or_an_address() {
    let host = |text: &str| read(&format!("cupboard://{text}")).map(|address| address.hosts()[0].or_port(9));
    for (text, name, port) in [
        ("a_b-c.example", "a_b-c.example", 9),
        ("h:65535", "h", 65535),
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[0:0::1]", "::1", 9),
        ("[fe80::1%25eth0]:7", "fe80::1%eth0", 7),
        ("[::ffff:127.0.0.1]:7", "::ffff:127.0.0.1", 7),
    ] {
        assert_eq!(host(text).unwrap(), (name.into(), port), "{text}");
    }
    for bad in [
        "h:0",
        "h:",
        "h:65536",
        "h:x",
        "h:1:2",
        ":1",
        "a,,b",
        ",a",
        "a b",
        "ä",
        "%41",
        "[::1",
        "[::x]",
        "[h]",
        "[::1]1",
        "[fe80::1%25]",
        "::1",
    ] {
        assert!(host(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_unencoded_password_is_refused_or_goes_to_the_last_at_as_the_form_says() {
    let lenient = |account: &str| Address::parse(&format!("drawer://{account}@h:1/p"), &LENIENT);
    for (url, password) in [("me:a@b:/#?é", "a@b:/#?é"), ("me:a%40b%25", "a@b%")] {
        let address = lenient(url).unwrap();
        assert_eq!(account(&address), (Some("me"), Some(password)));
        assert_eq!((address.hosts()[0].or_port(9), address.path()), (("h".into(), 1), &["p".to_owned()][..]));
    }
    for bad in ["me:a@b", "me:a#b", "me:a%b", "me:a%00b", "me:a%ffb"] {
        assert!(text(read(&format!("cupboard://{bad}@h"))).contains('%'), "{bad}");
    }
    // These read as a host, and something after it.
    assert!(read("cupboard://me:a/b@h").is_err() && read("cupboard://me:a?b@h").is_err());
    for fragment in ["cupboard://h#x", "cupboard://h/p#x", "cupboard://h?ca=a#x"] {
        assert!(text(read(fragment)).contains("nothing comes after a `#`"), "{fragment}");
    }
    assert!(Address::parse("drawer://h/p#x", &LENIENT).is_err());
}

#[test]
fn an_option_that_is_unknown_lists_the_known_ones() {
    let told = text(read("cupboard://h?tls_class=1"));
    let known = "cupboard:// it takes tls=verify|require|off, ca (a file";
    assert!(told.contains(known) && told.contains("ttl_class (a duration such as 5s), doors=open|closed"), "{told}");
    assert!(!told.contains("mode"), "{told}");
    assert!(text(read("cupboard+unix:///s?x=1")).contains("mode (the rights of the socket)"));
    assert!(text(read("cupboard://h?SSL-mode=1")).contains("write tls instead"));
    for url in ["drawer://h?a=1", "drawer://h?"] {
        assert!(text(Address::parse(url, &LENIENT)).contains("takes no parameters"), "{url}");
    }
}

#[test]
fn an_unknown_option_is_named_unless_its_name_may_be_a_part_of_a_password() {
    // Others know these names, so they are no secrets.
    for (name, advice) in
        [("charset", "leave it out"), ("usessl", "`useSSL`: write `tls=verify`"), ("token", ":token@")]
    {
        let told = text(read(&format!("cupboard://h?{name}=1")));
        assert!(told.contains("does not take `") && told.contains(advice), "{told}");
    }
    let told = text(read("cupboard://h?tls=off&door=open"));
    assert!(told.contains("the parameter `door` of") && told.contains("`doors` is near it"), "{told}");
    // A password with a `?`, and a value alone.
    for (url, secret) in [
        ("cupboard://me?qzj=1@h", "qzj"),
        ("cupboard://h?a=1@h&qzj=1", "qzj"),
        ("cupboard://h?qzj", "qzj"),
        ("cupboard://h?qzj==", "qzj"),
        ("cupboard://h?qzj=a&pass=b", "qzj"),
        ("cupboard://h?q%7Aj=1", "qzj"),
    ] {
        let told = text(read(url));
        assert!(told.contains("parameter 1 of") && !told.contains(secret), "{told}");
    }
}

#[test]
fn the_place_has_hosts_and_ports_and_no_half_of_a_password() {
    let place = |url: &str| read(url).unwrap().place();
    assert_eq!(place("cupboard://h:7,[::1]:8/p").as_deref(), Some("h:7, [::1]:8"));
    assert_eq!(place("cupboard://h").as_deref(), Some("h"));
    assert_eq!(place("cupboard://pass/word%40h"), None);
}

#[test]
fn an_option_that_cannot_be_is_named_with_what_it_takes() {
    let field = |url: &str| match read(url).unwrap_err().kind() {
        dlock_contract::ErrorKind::ConfigInvalid { field } => field.clone(),
        other => panic!("{other:?}"),
    };
    for (url, named) in [
        ("cupboard://h?doors=ajar", "doors"),
        ("cupboard://h?doors", "doors"),
        ("cupboard://h?ttl_class=", "ttl_class"),
        ("cupboard://h?ca=a&doors=open&ca=a", "ca"),
        ("cupboard://h?mode=1", "url"),
        ("cupboard://h?ca=%2", "url"),
    ] {
        assert_eq!(field(url), named, "{url}");
    }
    assert!(text(read("cupboard://h?doors=ajar")).contains("`doors` in a Cupboard URL is `open` or `closed`"));
    let address = read("cupboard://h?ttl_class=soon").unwrap();
    let error = address.read("ttl_class", |value| value.parse::<u8>().ok()).unwrap_err();
    assert!(error.to_string().contains("`ttl_class` in a Cupboard URL is a duration such as 5s"), "{error}");
    assert_eq!(address.read("ca", |_| Some(1)).unwrap(), None);
}

#[test]
fn a_file_is_a_path_and_has_no_account() {
    let path = |url: &str| Address::parse(url, &FILE).map(|address| address.path().to_vec());
    for (url, is) in [
        ("shelf:///a%20b/c#d", "/a b/c#d"),
        ("shelf://a@b", "a@b"),
        ("shelf:///a:b@c?shared=allow", "/a:b@c"),
        ("shelf://a ", "a "),
        ("shelf:a/b", "a/b"),
        ("shelf://", ""),
    ] {
        assert_eq!(path(url).unwrap(), [is], "{url}");
    }
    for bad in ["shelf://me:pw@h/a", "shelf://:pw@", "shelf://a%", "shelf://a%00", "shelf://a?shared=no"] {
        assert!(path(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_form_of_nothing_takes_nothing() {
    assert!(Address::parse("BOX://", &NOTHING).is_ok());
    for bad in ["box://h", "box://?", "box:///", "box:", "cupboard://", ""] {
        assert!(Address::parse(bad, &NOTHING).is_err(), "{bad}");
    }
}

mod tls {
    use super::*;

    fn mode(rest: &str, by_socket: bool) -> Result<TlsMode> {
        Tls::by_option(&read(&format!("cupboard://{rest}"))?, by_socket).map(|tls| tls.mode)
    }

    #[test]
    fn only_this_host_may_be_silent_about_tls() {
        for (host, socket, here) in [
            ("localhost", false, true),
            ("LOCALHOST", false, true),
            ("127.0.0.1", false, true),
            ("127.8.9.1", false, true),
            ("[::1]", false, true),
            ("", true, true),
            ("db.example", true, true),
            ("db.example", false, false),
            ("localhost,db.example", false, false),
            ("localhost.example", false, false),
            ("0.0.0.0", false, false),
            ("10.0.0.1", false, false),
        ] {
            let mode = mode(host, socket);
            assert_eq!(mode.is_ok(), here, "{host}");
            if let Err(error) = mode {
                assert!(error.to_string().contains("add tls=verify"), "{error}");
            }
        }
        for (said, is) in [("off", TlsMode::Off), ("require", TlsMode::Require), ("verify", TlsMode::Verify)] {
            assert_eq!(mode(&format!("db.example?tls={said}"), false).unwrap(), is);
        }
    }

    #[test]
    fn no_error_names_a_word_that_the_store_does_not_take() {
        const STRICT: UrlForm = UrlForm::new("a Safe URL", "safe://host", &["safe"], UrlBody::Hosts)
            .options(&[OptionRow::one_of("tls", &["verify", "off"]), OptionRow::CERT]);
        for rest in ["db.example", "localhost?cert=a.pem"] {
            let strict = Tls::by_option(&Address::parse(&format!("safe://{rest}"), &STRICT).unwrap(), false);
            let strict = strict.unwrap_err().to_string();
            assert!(strict.contains("tls=verify") && !strict.contains("require"), "{strict}");
            assert!(mode(rest, false).unwrap_err().to_string().contains("tls=require"));
        }
    }

    #[test]
    fn tls_options_that_mean_nothing_together_are_refused() {
        assert_eq!(mode("h?tls=off", true).unwrap(), TlsMode::Off);
        for (rest, by_socket, says) in [
            ("h?tls=verify", true, "a Unix socket is not encrypted"),
            ("h?tls=require", true, "a Unix socket is not encrypted"),
            ("h?tls=require&ca=a.pem", false, "only used with tls=verify"),
            ("localhost?ca=a.pem", false, "only used with tls=verify"),
            ("h?tls=off&cert=a.pem", false, "need tls=verify or tls=require"),
            ("localhost?key=a.pem", false, "need tls=verify or tls=require"),
        ] {
            let error = mode(rest, by_socket).unwrap_err().to_string();
            assert!(error.contains(says), "{rest}: {error}");
        }
    }

    #[test]
    fn the_files_are_read_and_must_be_pem_of_their_kind() {
        let folder = std::env::temp_dir().join(format!("dlock-address-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let (cert, key) = ("-----BEGIN CERTIFICATE-----\n", "-----BEGIN EC PRIVATE KEY-----\n");
        let (cert, key) = (file("cert.pem", cert), file("key.pem", key));
        let tls = |query: &str| Tls::verified(&read(&format!("cupboard://h?{query}")).unwrap());
        let good = tls(&format!("ca={cert}&cert={cert}&key={key}")).unwrap();
        assert!(good.mode == TlsMode::Verify && good.ca.is_some() && good.identity.is_some());
        assert!(!format!("{good:?}").contains("PEM") && tls("").unwrap().ca.is_none());
        for (query, says) in [
            (format!("ca={key}"), "ca= holds no certificate"),
            (format!("cert={cert}&key={cert}"), "key= holds no private key"),
            (format!("cert={cert}"), "needs its key"),
            (format!("key={key}"), "needs its key"),
            ("ca=/nowhere/at/all".to_owned(), "ca= cannot be read"),
        ] {
            let error = tls(&query).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("nowhere"), "{query}: {error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
