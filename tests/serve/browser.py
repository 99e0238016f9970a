"""The page in a headless Chromium: Debian's `chromium` and `chromium-driver`, driven by selenium."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

WATCH = """
    window.cells = []; window.rounds = [];
    new MutationObserver(() => {
        for (const cell of document.querySelectorAll(".board .cell")) window.cells.push(cell.dataset.kind);
        const rounds = document.querySelector("[data-figure=rounds]")?.textContent;
        if (rounds && rounds !== window.rounds.at(-1)) window.rounds.push(rounds);
    }).observe(document.querySelector("#lanes"), { subtree: true, childList: true, attributes: true });
"""
"""Script that notes what the cells are and what the counter says, whenever something changes."""
WIDE, NARROW = (1280, 800), (390, 844)
TIMEOUT_S = 30.0
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # Chromium's own needs rights that a container's root has not
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)


class Page:
    """The page as a person works it, in CSS selectors."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self._url = driver, url

    def open(self, size: tuple[int, int] = WIDE, scheme: str = "light", motion: str = "no-preference") -> None:
        """Load it anew, as a window of this size in CSS pixels, with these preferences of its user."""
        width, height = size
        window = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", **window)
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        self._devtools("Emulation.setEmulatedMedia", features=[{"name": k, "value": v} for k, v in features.items()])
        self.driver.get(self._url)
        self.wait(lambda: self.text("#model") or self.text("#error"))
        self.problems()

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    @property
    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def text(self, selector: str) -> str:
        return self.find(selector).text

    def figure(self, name: str, lane: int = 1) -> str:
        return self.text(f".lane:nth-child({lane}) [data-figure={name}]")

    def fill(self, **values: str) -> None:
        """Fields by id, with - for _; what was there is replaced."""
        for name, value in values.items():
            field = self.find(f"#{name.replace('_', '-')}")
            if field.tag_name == "select":
                Select(field).select_by_visible_text(value)
            else:
                field.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE, value)

    def pace(self, value: str) -> None:
        self.find(f"[name=pace][value={value}]").click()

    def run(self) -> None:
        self.find("#run").click()

    def wait(self, condition: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> Any:
        return WebDriverWait(self.driver, timeout_s, poll_frequency=0.03).until(lambda _: condition())

    def status(self, beginning: str) -> str:
        """Wait until the status line begins so; the whole of it."""
        self.wait(lambda: self.text("#status").startswith(beginning))
        return self.text("#status")

    def problems(self) -> list[str]:
        """What the console complains of since the last call: faults of the script, breaches of the policy."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def spoken(self) -> list[tuple[str, str]]:
        """(role, name) of everything that can have the focus, as a screen reader is told."""
        nodes = self._devtools("Accessibility.getFullAXTree")["nodes"]
        focusable = [
            node
            for node in nodes
            if any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", ()))
        ]
        return [(node["role"]["value"], node["name"]["value"]) for node in focusable]

    def style(self, element: WebElement, name: str) -> str:
        return self.driver.execute_script("return getComputedStyle(arguments[0])[arguments[1]]", element, name)

    def screenshot(self, path: str) -> None:
        self.driver.save_screenshot(path)

    def _devtools(self, command: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)


@contextlib.contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    """A Chromium that is gone afterwards; skips the test where there is none."""
    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver_path):
        pytest.skip("no Chromium here; on Debian: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        yield driver
    finally:
        driver.quit()
