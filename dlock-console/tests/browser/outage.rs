//! A store that goes away while the page is open.

use dlock::Key;
use dlock_testkit::{Mode, Proxy};

use crate::chromium::Chromium;
use crate::service::Service;

#[test]
fn the_page_says_so_and_comes_back_by_itself() {
    let service = Service::start(|_, console| async move { console });
    service.hold(Key::text("job"), "jobs::run");
    let mut browser = Chromium::start();
    let tab = browser.open(&format!("{}?store=main&prefix=job", service.url), (1280, 900), false);
    browser.until(&tab, "document.getElementById('state').textContent === 'Live'");
    browser.until(&tab, "document.querySelectorAll('#locks-rows button.key').length === 1");
    service.redis.kill9().unwrap();
    browser.until(&tab, "document.getElementById('state').textContent.includes('store does not answer')");
    browser.until(&tab, "!document.getElementById('away').hidden");
    assert_eq!(
        browser.value(&tab, "document.querySelectorAll('#locks-rows button.key').length"),
        1,
        "the last picture stays"
    );
    browser.until(&tab, "document.querySelector('#stores-list .bad') !== null");
    service.redis.restart().unwrap();
    browser.until(
        &tab,
        "document.getElementById('state').textContent === 'Live' && document.getElementById('away').hidden",
    );
    browser.until(&tab, "document.querySelector('#stores-list .bad') === null");
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
}

/// As behind a firewall that forgets the connection: no end of it ever comes.
#[test]
fn the_page_does_not_call_a_silent_connection_live() {
    let service = Service::start(|_, console| async move { console });
    let (proxy, url) = Proxy::in_front_of(&service.url).unwrap();
    let mut browser = Chromium::start();
    let tab = browser.open(&format!("{url}?store=main"), (1280, 900), false);
    browser.until(&tab, "document.getElementById('state').textContent === 'Live'");
    proxy.set(Mode::BLACKHOLE);
    browser.until(&tab, "document.getElementById('state').textContent.includes('service does not answer')");
    proxy.set(Mode::Pass);
    browser.until(&tab, "document.getElementById('state').textContent === 'Live'");
}
