//! No script of a key runs, and each text is shown as text.

use std::time::Duration;

use dlock::backends::memory::Memory;
use dlock::{Key, Wait};
use serde_json::Value;

use crate::chromium::Chromium;
use crate::service::Service;

/// Each would set `window.hacked` if it were more than text.
const SCRIPTS: [&str; 6] = [
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "\"><svg/onload=window.hacked=1>",
    "'-(window.hacked=1)-'",
    "</script></style><iframe srcdoc=\"<script>parent.hacked=1</script>\">",
    "javascript:window.hacked=1",
];

/// In a note, which has no blanks.
const TAG: &str = "<img/src=x/onerror=window.hacked=1>";

#[test]
fn texts_of_strangers_are_shown_as_text_and_nothing_of_them_runs() {
    let service = Service::start(|registry, console| async move {
        registry.install("\"><script>window.hacked=1</script>", Memory::new()).unwrap();
        console.election("main", TAG)
    });
    for (number, script) in SCRIPTS.iter().enumerate() {
        service.hold(Key::text("evil:").value(&number).and_text(":").value(*script), TAG);
    }
    service.hold(Key::text("evil:rtl:").value("שלום\u{202e}gpj.exe\u{2066}"), "rtl");
    service.hold(Key::text("evil:emoji:").value("🔒👩‍🚒"), "emoji");
    service.hold(Key::text("evil:long:").value(&"x".repeat(700)), &"y".repeat(700));
    let leader = service.registry.elect(Key::rendered(TAG)).backend("main").candidate(TAG);
    let _leadership = service.block_on(leader.campaign()).unwrap();
    let quotes = || Key::text("evil:quotes:").value("\"'`&amp;\\");
    service.hold(quotes(), "quotes");
    let late = service.registry.lock(quotes()).backend("main").name(TAG).wait(Wait::UpTo(Duration::from_millis(1)));
    service.block_on(late.acquire()).unwrap_err();

    let mut browser = Chromium::start();
    let tab = browser.open(&format!("{}?store=main&prefix=evil:", service.url), (1280, 900), false);
    browser.until(&tab, "document.querySelectorAll('#locks-rows button.key').length === 10");
    browser.until(&tab, "document.querySelectorAll('#sites-list .card').length === 2");
    browser.until(&tab, "document.querySelectorAll('#stores-list .card').length === 2");
    browser.until(&tab, "document.querySelectorAll('#leaders-rows tr').length === 2");
    browser.until(&tab, "document.querySelector('#leaders-rows').textContent.includes('onerror')");
    browser.until(&tab, "document.querySelectorAll('#lanes .track').length > 1 && document.querySelectorAll('#holds .track').length > 9");
    browser.until(&tab, "document.getElementById('trouble').textContent.includes('onerror')");
    // All details too.
    browser.value(&tab, "document.querySelectorAll('#locks-rows button.key').forEach((key) => key.click())");
    browser.until(&tab, "document.querySelectorAll('#locks-rows tr.more').length === 10");
    let shown =
        browser.value(&tab, "[...document.querySelectorAll('#locks-rows button.key')].map((key) => key.textContent)");
    let shown: Vec<_> = shown.as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    let has = |text: &str| assert!(shown.iter().any(|key| key.contains(text)), "{text} is not in {shown:#?}");
    SCRIPTS.into_iter().for_each(has);
    ["שלום\\u{202e}gpj.exe\\u{2066}", "🔒👩‍🚒", "\"'`&amp;\\", &"x".repeat(700)].into_iter().for_each(has);
    for (what, wanted) in [
        ("typeof window.hacked", Value::from("undefined")),
        ("document.scripts.length", 1.into()),
        ("document.querySelectorAll('img, svg, iframe, object, embed, link').length", 0.into()),
        ("document.querySelectorAll('[onerror], [onload], [style*=url]').length", 0.into()),
        // A very long key neither widens the page nor fills it.
        ("document.documentElement.scrollWidth <= innerWidth", true.into()),
    ] {
        assert_eq!(browser.value(&tab, what), wanted, "{what}");
    }
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
    // The policy holds also where a text did become markup.
    browser.value(&tab, "document.body.insertAdjacentHTML('beforeend', '<img src=\"data:image/png;base64,x\" onerror=\"window.hacked=1\">')");
    browser.value(
        &tab,
        "const bad = document.createElement('script'); bad.textContent = 'window.hacked=1'; document.body.append(bad)",
    );
    assert_eq!(browser.value(&tab, "typeof window.hacked"), "undefined");
    assert!(!browser.complaints().is_empty(), "the policy has refused them");
}

#[test]
fn locks_of_other_programs_are_marked() {
    let service = Service::start(|_, console| async move { console });
    for name in ["cron:backup", "<img/src=x/onerror=window.hacked=1>"] {
        service.redis.ask(&format!("SET {name} a-secret NX PX 3600000")).unwrap();
    }
    let url = format!("{}?keys=literal", service.redis.url());
    service.block_on(service.registry.connect("shared", &url)).unwrap();
    let mut browser = Chromium::start();
    let tab = browser.open(&format!("{}?store=shared", service.url), (1280, 900), false);
    browser.until(&tab, "document.querySelector('#locks-rows').textContent.includes('cron:backup')");
    browser.until(&tab, "document.querySelector('#locks-rows .tag')?.textContent === 'another program'");
    assert_eq!(browser.value(&tab, "document.body.textContent.includes('a-secret')"), false);
    assert_eq!(browser.value(&tab, "typeof window.hacked"), "undefined");
}
