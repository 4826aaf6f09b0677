//! The page on a phone and on a desk, by day and by night; and the pictures of the documentation.

use std::path::PathBuf;

use dlock::Key;

use crate::chromium::Chromium;
use crate::service::Service;

/// The folder for the pictures. Without it none are written.
const PICTURES: &str = "DLOCK_PICTURES";

#[test]
fn the_page_can_be_read_on_a_phone_and_in_the_dark() {
    let service = Service::start(|_, console| async move { console });
    service.hold(Key::text("invoice:").value(&2026), "billing::close_month");
    service.hold(Key::text("import:").value("eu-west"), "catalog::import");
    let folder = std::env::var_os(PICTURES).map(PathBuf::from);
    let mut browser = Chromium::start();
    for (name, size, is_dark, part) in
        [("console", (1100, 800), false, "locks"), ("console-phone", (390, 844), true, "timeline")]
    {
        let tab = browser.open(&format!("{}?store=main", service.url), size, is_dark);
        browser.until(&tab, "document.querySelectorAll('#locks-rows button.key').length > 4");
        // For a picture there is more to see after a while: the losses are one a second.
        let minimum = if folder.is_some() { 30 } else { 2 };
        browser.until(&tab, &format!("document.querySelectorAll('#trouble li').length > {minimum}"));
        browser.until(&tab, "document.querySelectorAll('#holds .track i').length > 15");
        // Losses are red, in the timeline and in the list.
        browser.until(&tab, "document.querySelector('#lanes i.lost') !== null");
        let red = "getComputedStyle(document.querySelector('#lanes i.lost')).backgroundColor";
        let bad =
            "(() => { const i = document.createElement('i'); i.style.color = 'var(--bad)'; document.body.append(i);
            const color = getComputedStyle(i).color; i.remove(); return color; })()";
        assert_eq!(browser.value(&tab, red), browser.value(&tab, bad), "{name}");
        assert_eq!(browser.value(&tab, "document.querySelector('#trouble li.bad') !== null"), true, "{name}");
        assert_eq!(browser.value(&tab, "document.documentElement.scrollWidth <= innerWidth"), true, "{name}");
        let back = browser.value(&tab, "getComputedStyle(document.body).backgroundColor");
        assert_eq!(back == "rgb(255, 255, 255)", !is_dark, "{name}: {back}");
        browser.value(&tab, &format!("document.getElementById('{part}').scrollIntoView()"));
        let picture = browser.picture(&tab);
        assert!(picture.starts_with(b"\x89PNG"));
        if let Some(folder) = &folder {
            std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
        }
    }
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
}

#[test]
fn functions_with_one_name_have_a_row_each_however_often_the_page_is_told() {
    let service = Service::start(|_, console| async move { console });
    let mut browser = Chromium::start();
    let tab = browser.open(&service.url, (1100, 800), false);
    let tell = "for (const next of [1, 2, 3])
        showTasks({ tasks: [{ task: 'report', period: 60000, next }, { task: 'report', period: 3600000, next }] });
        document.querySelectorAll('#tasks-rows tr').length";
    browser.until(&tab, "typeof showTasks === 'function'");
    assert_eq!(browser.value(&tab, tell), 2);
}
