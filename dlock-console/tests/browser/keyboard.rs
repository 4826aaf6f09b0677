//! The page without a mouse, and pages that are closed.

use dlock::Key;

use crate::chromium::Chromium;
use crate::service::Service;

#[test]
fn a_lock_is_found_opened_and_broken_by_keyboard() {
    let service = Service::start(|_, console| async move { console.breaking(|_| Some("alice".into())) });
    service.hold(Key::text("job:").value(&7), "jobs::run");
    let mut browser = Chromium::start();
    let tab = browser.open(&service.url, (1280, 900), false);
    browser.until(&tab, "document.querySelectorAll('#locks-rows tr').length > 1");
    browser.press(&tab, "/");
    assert_eq!(browser.value(&tab, "document.activeElement.id"), "prefix");
    browser.write(&tab, "job:");
    browser.press(&tab, "Enter");
    browser.until(&tab, "document.querySelectorAll('#locks-rows button.key').length === 1");
    let tab_to = |browser: &mut Chromium, what: &str| {
        for _ in 0..40 {
            browser.press(&tab, "Tab");
            if browser.value(&tab, &format!("document.activeElement.matches('{what}')")) == true {
                return;
            }
        }
        panic!("the key Tab never comes to {what}");
    };
    tab_to(&mut browser, "button.key");
    browser.press(&tab, "Enter");
    browser.until(&tab, "document.activeElement.getAttribute('aria-expanded') === 'true'");
    browser.until(&tab, "document.querySelectorAll('#locks-rows tr.more').length === 1");
    tab_to(&mut browser, "button.danger");
    browser.press(&tab, "Enter");
    browser.until(&tab, "document.activeElement.id === 'break-why'");
    browser.write(&tab, "it hangs");
    browser.press(&tab, "Enter");
    browser.until(&tab, "!document.getElementById('break').open");
    browser.until(&tab, "document.querySelectorAll('#locks-rows tr').length === 0");
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
}

#[test]
fn an_old_hold_is_refused_and_the_present_holder_is_shown() {
    let service = Service::start(|_, console| async move { console.breaking(|_| Some("alice".into())) });
    let lock = || service.registry.lock("job").backend("main").name("first").ttl(std::time::Duration::from_secs(3600));
    let first = service.block_on(lock().acquire()).unwrap();
    let mut browser = Chromium::start();
    let tab = browser.open(&format!("{}?store=main&prefix=job", service.url), (1280, 900), false);
    browser.until(&tab, "document.querySelectorAll('#locks-rows button.key').length === 1");
    browser.value(&tab, "document.querySelector('button.key').click()");
    browser.until(&tab, "document.querySelector('button.danger[data-hold]') !== null");
    browser.value(&tab, "document.querySelector('button.danger[data-hold]').click()");
    // While the question is open the lock goes on to another holder.
    service.block_on(first.release()).unwrap();
    service.hold(Key::text("job"), "second");
    browser.write(&tab, "it hangs");
    browser.press(&tab, "Enter");
    browser.until(&tab, "document.getElementById('break-answer').textContent.includes('now held by')");
    let still = service.block_on(lock().holders()).unwrap();
    assert_eq!(still.holders[0].note.site(), Some("second"));
}

#[test]
fn a_closed_page_ends_its_stream() {
    let service = Service::start(|_, console| async move { console });
    let mut browser = Chromium::start();
    let one = browser.open(&service.url, (1280, 900), false);
    let other = browser.open(&service.url, (1280, 900), false);
    browser.until(&one, "document.getElementById('about').textContent.includes('2 pages are open')");
    browser.close(other);
    browser.until(&one, "document.getElementById('about').textContent.includes('the only one')");
}
