"""The page at `/` in a real browser: against the shipped pair, and against a stand-in where something must go wrong."""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from deployments.ingress.page import FILES
from simsd.errors import QueueFullError, WorkerLostError
from simsd.messages.request import Output, Request, RoundEvent, Stats
from simsd.tokens.tokenizer import Tokenizer
from simsd.worker.ports import free_port
from tests.serve.browser import NARROW, WATCH, WIDE, Page, browser
from tests.serve.server.conftest import TIMEOUT_S, Server
from tests.serve.stand_in import BLOCK_SIZE as BLOCK
from tests.serve.stand_in import build_app, client_of

PROMPT = "Mia buys 4 bags of 17 stamps and gives away 9. How many stamps are left?"


@dataclass
class StandIn:
    """Reveals a block a round for as long as it is read, or fails where a test says so."""

    tokenizer: Tokenizer
    rounds: int = 4
    pause_s: float = 0.0
    fail_first: Exception | None = None
    fail_later: Exception | None = None
    asked: list[Request] = field(default_factory=list)
    closed: int = 0

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        self.asked.append(request)
        token = self.tokenizer.encode(" x")[-1]
        try:
            if self.fail_first:
                raise self.fail_first
            for number in range(1, self.rounds + 1):
                start = (number - 1) * BLOCK
                drafted = [(start + offset, token) for offset in range(BLOCK - 1)]
                reveals = [(index, token, "accepted") for index, _ in drafted[:-1]] + [
                    (start + BLOCK - 2, token, "recovered"),
                    (start + BLOCK - 1, token, "denoised"),
                ]
                last = number == self.rounds
                stats = Stats(9, start + BLOCK, rounds=number, drafted=3 * number, accepted=2 * number, decode_s=0.5)
                event = RoundEvent(number, start, drafted, reveals)
                end = ("stop", stats) if last else (None, None)
                yield Output([token] * BLOCK, "x" * BLOCK, *end, events=[event])
                await asyncio.sleep(self.pause_s)
                if self.fail_later:
                    raise self.fail_later
        finally:
            self.closed += 1

    async def load(self) -> tuple[int, int]:
        return 0, 0


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    with browser() as driver:
        yield driver


@pytest.fixture
def page(server: Server, chromium: webdriver.Chrome) -> Iterator[Page]:
    """The page of the shipped pair, live; its console must stay clean, but for refused requests."""
    page = Page(chromium, server.url)
    page.open()
    page.pace("live")
    yield page
    assert [problem for problem in page.problems() if "status of 4" not in problem] == []


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of servers that are started after it."""
    monkeypatch.setenv("SIMSD_API_KEYS", "the-key")


@pytest.fixture
def stand_in(tokenizer: Tokenizer) -> StandIn:
    return StandIn(tokenizer)


@pytest.fixture
def stand_in_url(stand_in: StandIn) -> Iterator[str]:
    port = free_port()
    app = build_app(stand_in.tokenizer, stand_in)
    http = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=http.run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        http.should_exit = True
        thread.join(TIMEOUT_S)


@pytest.fixture
def broken(chromium: webdriver.Chrome, stand_in_url: str) -> Page:
    """The page of the stand-in, live."""
    page = Page(chromium, stand_in_url)
    page.open()
    page.pace("live")
    return page


def answer(server: Server, prompt: str, **body: Any) -> dict[str, Any]:
    """The API's answer to what the page would ask."""
    messages = [{"role": "user", "content": prompt}]
    with server.client() as client:
        response = client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 128, **body})
    response.raise_for_status()
    return response.json()


def kinds(page: Page) -> list[str]:
    """What the cells are at this moment, in the order of their positions."""
    script = "return [...document.querySelectorAll('.board .cell')].map((cell) => cell.dataset.kind)"
    return page.driver.execute_script(script)


def rounds(page: Page) -> int:
    return int(page.figure("rounds").replace("–", "0"))


def contrast(page: Page, selector: str) -> float:
    """WCAG's contrast of a text with the nearest background that is not transparent."""
    script = """
        const channel = (v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
        const light = (colour) => {
            const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(channel);
            return .2126 * r + .7152 * g + .0722 * b;
        };
        const element = document.querySelector(arguments[0]);
        let below = element, ground;
        do { ground = getComputedStyle(below).backgroundColor; below = below.parentElement; }
        while (ground === "rgba(0, 0, 0, 0)" && below);
        const [dark, bright] = [light(getComputedStyle(element).color), light(ground)].sort((a, b) => a - b);
        return (bright + .05) / (dark + .05);
    """
    return page.driver.execute_script(script, selector)


def test_the_answer_and_its_figures_are_the_api_s(page: Page, server: Server) -> None:
    answer(server, PROMPT)  # from now on the prompt is cached, whoever asks
    expected = answer(server, PROMPT)
    stats = expected["simsd"]
    page.fill(prompt=PROMPT)
    page.run()
    assert page.status("Done").startswith(f"Done: {stats['completion_tokens']} tokens in {stats['rounds']} rounds")
    assert page.text(".answer") == expected["choices"][0]["message"]["content"]
    for name, value in [("rounds", "rounds"), ("target", "target_forwards"), ("draft", "draft_forwards")]:
        assert page.figure(name) == str(stats[value])
    assert page.figure("accepted") == f"{round(100 * stats['accepted'] / stats['drafted'])} %"
    assert page.figure("drafted") == f"of {stats['drafted']}"
    assert int(page.figure("speed")) > 0


def test_the_cells_of_the_answer_hold_its_text(page: Page) -> None:
    page.fill(prompt="What is the capital of France?", method="vanilla")
    page.run()
    page.status("Done")
    cells = page.all(".board .cell:not(.beyond) .token")
    written = "".join(cell.text for cell in cells if not re.fullmatch(r"⟨\d+⟩", cell.text))
    assert written == page.text(".answer").replace(" ", "")
    assert set(kinds(page)) <= {"denoised", "mask", "prompt"}
    assert page.figure("accepted") == "–"


def test_slowly_the_counters_move_and_cells_go_from_mask_over_drafted_to_accepted(page: Page) -> None:
    page.fill(prompt=PROMPT)
    page.pace("slow")
    page.driver.execute_script(WATCH)
    page.run()
    page.wait(lambda: rounds(page) >= 4)
    page.pace("live")
    page.status("Done")
    cells, counted = page.driver.execute_script("return [window.cells, window.rounds]")
    first = list(dict.fromkeys(cells))
    assert first.index("mask") < first.index("drafted") < first.index("accepted")
    assert counted[:3] == ["–", "2", "3"]  # the first round is the prompt's


def test_a_refused_token_stays_struck_out_in_the_cell_of_the_one_that_replaced_it(page: Page) -> None:
    page.fill(prompt=PROMPT, temperature="1.5", seed="3")
    page.run()
    page.status("Done")
    replaced = page.all(".board .cell[data-kind=recovered]")
    assert replaced
    for cell in replaced:
        struck = cell.find_element("css selector", "s").get_attribute("textContent")
        assert struck and struck != cell.find_element("css selector", ".token").text
        assert "instead of a refused one" in (cell.get_attribute("title") or "")


def test_what_the_server_refuses_is_shown_at_the_field(page: Page, server: Server) -> None:
    page.fill(gamma="99")
    page.run()
    page.wait(lambda: page.text("#error"))
    with server.client() as client:
        body = {"messages": [{"role": "user", "content": "x"}], "simsd": {"gamma": 99}}
        refused = client.post("/v1/chat/completions", json=body).json()["error"]["message"]
    assert page.text("#error") == refused
    gamma = page.find("#gamma")
    assert gamma == page.focused and gamma.get_attribute("aria-invalid") == "true"
    page.fill(gamma="2")
    page.run()
    page.status("Done")
    assert page.text("#error") == "" and gamma.get_attribute("aria-invalid") is None


@pytest.mark.parametrize(("text", "part"), [("four", "simsd.gamma must be a number"), ("1.5", "gamma")])
def test_gamma_that_is_no_whole_number_is_refused(page: Page, text: str, part: str) -> None:
    page.fill(gamma=text)
    page.run()
    page.wait(lambda: page.text("#error"))
    assert part in page.text("#error")
    assert page.find("#gamma") == page.focused


def test_an_empty_prompt_is_refused_at_once(page: Page) -> None:
    page.fill(prompt="")
    page.run()
    assert page.text("#error") == "Type a prompt first."
    assert page.find("#prompt") == page.focused


def test_exact_and_vanilla_side_by_side_give_one_text(page: Page, server: Server) -> None:
    page.fill(prompt=PROMPT, method="exact", rival="vanilla", temperature="0.8", seed="5")
    page.run()
    page.wait(lambda: "was first" in page.text("#status"))
    assert page.text("#status").endswith("The answers are the same.")
    assert [heading.text for heading in page.all(".lane h2")] == ["exact", "vanilla"]
    for lane, method in enumerate(("exact", "vanilla"), 1):
        expected = answer(server, PROMPT, temperature=0.8, seed=5, simsd={"method": method})
        assert page.text(f".lane:nth-child({lane}) .answer") == expected["choices"][0]["message"]["content"]
        assert page.figure("target", lane) == str(expected["simsd"]["target_forwards"])


def test_a_method_has_no_race_against_itself(page: Page) -> None:
    page.fill(rival="vanilla")
    page.fill(method="vanilla")
    assert page.find("#rival").get_attribute("value") == ""
    assert [option.text for option in page.all("#rival option:disabled")] == ["vanilla"]


def test_lanes_lie_side_by_side_in_a_wide_window_and_below_each_other_in_a_narrow_one(page: Page) -> None:
    for size in (WIDE, NARROW):
        page.open(size)
        page.pace("live")
        page.fill(prompt=PROMPT, rival="vanilla")
        page.run()
        page.wait(lambda: "was first" in page.text("#status"))
        first, second = (lane.rect for lane in page.all(".lane"))
        assert (first["y"] == second["y"]) == (size == WIDE)
        assert page.driver.execute_script("return document.documentElement.scrollWidth") <= size[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(page: Page, scheme: str) -> None:
    page.open(scheme=scheme)
    for kind in ("drafted", "accepted", "refused", "recovered", "bonus", "denoised"):
        assert contrast(page, f".legend [data-kind={kind}]") >= 4.5, kind
    for selector in ("body", "header p", ".help", "dt, label", "#run", "#error"):
        assert contrast(page, selector) >= 4.5, selector
    red = re.findall(r"\d+", page.style(page.find("body"), "backgroundColor"))[0]
    assert (int(red) > 127) == (scheme == "light")


def test_a_person_without_a_mouse_runs_it(page: Page) -> None:
    page.open(motion="reduce")
    page.find("body").send_keys(Keys.TAB)
    assert page.focused == page.find("#prompt")
    page.fill(prompt="What is the capital of France?")
    page.find("#prompt").send_keys(Keys.ENTER)
    page.status("Done")
    names = page.spoken()
    assert ("button", "Run") in names and ("textbox", "Prompt") in names and ("textbox", "Gamma") in names
    assert [role for role, name in names if not name and role != "RootWebArea"] == []


@pytest.mark.parametrize(
    ("motion", "pace", "animation"), [("reduce", "live", "none"), ("no-preference", "slow", "refuse")]
)
def test_whoever_wants_less_motion_gets_none(broken: Page, motion: str, pace: str, animation: str) -> None:
    broken.open(motion=motion)
    assert broken.find(f"[name=pace][value={pace}]").is_selected()
    broken.pace("live")
    broken.run()
    broken.status("Done")
    cell = broken.find(".board .cell")
    broken.driver.execute_script("arguments[0].dataset.kind = 'refused'", cell)
    assert broken.style(cell, "animationName") == animation
    assert (broken.style(cell, "transitionDuration") == "0s") == (motion == "reduce")


def test_stop_ends_the_request_on_the_server(broken: Page, stand_in: StandIn) -> None:
    stand_in.rounds, stand_in.pause_s = 1000, 0.05
    broken.run()
    broken.wait(lambda: rounds(broken) >= 3)
    broken.find("#stop").click()
    assert broken.status("Stopped") == "Stopped."
    broken.wait(lambda: stand_in.closed == 1)
    assert not broken.find("#stop").is_enabled()
    assert broken.focused == broken.find("#run")


def test_a_second_run_takes_the_first_one_s_place(broken: Page, stand_in: StandIn) -> None:
    stand_in.rounds, stand_in.pause_s = 1000, 0.05
    broken.run()
    broken.wait(lambda: rounds(broken) >= 3)
    stand_in.rounds = 2
    broken.run()
    assert broken.status("Done").startswith("Done: 8 tokens in 2 rounds, 4 of 6 drafted tokens accepted")
    broken.wait(lambda: stand_in.closed == 2)
    assert len(broken.all(".lane")) == 1


def test_playing_slowly_does_not_hold_up_the_server(broken: Page, stand_in: StandIn) -> None:
    stand_in.rounds = 40
    broken.pace("slow")
    broken.run()
    broken.wait(lambda: stand_in.closed == 1, 3.0)
    assert rounds(broken) < 20
    broken.pace("live")
    broken.status("Done: 160 tokens in 40 rounds")


def test_a_server_with_keys_is_asked_with_the_one_that_was_typed(keys: None, broken: Page, stand_in: StandIn) -> None:
    assert "key" in broken.text("#error")
    broken.run()
    broken.wait(lambda: broken.focused == broken.find("#key"))
    broken.fill(key="another")
    broken.run()
    broken.wait(lambda: broken.find("#key").get_attribute("aria-invalid"))
    assert stand_in.asked == []
    broken.fill(key="the-key")
    broken.run()
    broken.status("Done")
    assert broken.text("#error") == "" and broken.text("#model").startswith("tiny")
    broken.open()
    assert broken.text("#model").startswith("tiny")  # it is remembered
    assert not broken.find("#key").is_displayed()


def test_without_a_key_there_is_no_field_for_one(broken: Page) -> None:
    assert not broken.find("#key").is_displayed()


def test_a_full_queue_is_told(broken: Page, stand_in: StandIn) -> None:
    stand_in.fail_first = QueueFullError("16 requests run and 128 wait", 2.0)
    broken.run()
    broken.wait(lambda: broken.text("#error"))
    assert "16 requests run and 128 wait" in broken.text("#error")
    assert broken.text("#status") == ""


def test_an_error_in_the_middle_is_told_and_what_came_stays(broken: Page, stand_in: StandIn) -> None:
    stand_in.fail_later = WorkerLostError("the target's engine is gone", "target")
    broken.run()
    broken.wait(lambda: broken.text("#error"))
    assert "not available at the moment" in broken.text("#error")
    assert broken.text(".answer") == "xxxx"
    assert not broken.find("#stop").is_enabled()


def test_a_server_that_is_gone_is_told(broken: Page) -> None:
    broken.driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    broken.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        broken.run()
        broken.wait(lambda: broken.text("#error"))
    finally:
        broken.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline | {"offline": False})
    assert broken.text("#error") == "The server cannot be reached."


async def test_the_files_are_complete_and_bound_by_a_policy(tokenizer: Tokenizer, stand_in: StandIn) -> None:
    async with client_of(build_app(tokenizer, stand_in)) as client:
        for path, (_, media_type) in FILES.items():
            response = await client.get(path)
            assert response.status_code == 200 and response.headers["content-type"].startswith(media_type)
            policy = response.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'") and "unsafe" not in policy
            assert set(re.findall(r"https?://[^'\"\s)]+", response.text)) <= {"http://www.w3.org/2000/svg"}
        schema = (await client.get("/openapi.json")).json()
    assert not set(FILES) & set(schema["paths"])
