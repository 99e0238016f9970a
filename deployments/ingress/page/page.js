// Requests an answer with its events, and plays the rounds: as they come, slowly, or for two methods side by side.
// A "moment" is a part of the answer: { at } in ms since the request was sent, and an event, text, an end or figures.

const SLOT_MS = 120; // when played slowly: one action of a round
const PAUSE_SLOTS = 3; // when played slowly: the pauses after drafting, after refusals and after a round
const RACE_MS = 12000; // when played slowly: the time of the slower method in a race
const KEY = "simsd-api-key";

const find = (selector, root = document) => root.querySelector(selector);
const prompt = find("#prompt");
const isSlow = () => find("[name=pace]:checked").value === "slow";

class Refusal extends Error {
  constructor({ message, param = null }, status = 0) {
    super(message);
    Object.assign(this, { param, status });
  }
}

function authorization() {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function call(path, options = {}) {
  const headers = { ...authorization(), "Content-Type": "application/json" };
  const response = await fetch(path, { ...options, headers }).catch((error) => {
    throw error.name === "AbortError" ? error : new Refusal({ message: "The server cannot be reached." });
  });
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const fallback = { message: `The server answered ${response.status} ${response.statusText}.` };
  throw new Refusal(body.error ?? fallback, response.status);
}

async function* chunksOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Refusal({ message: "The connection closed before the answer was complete." });
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const data of events.filter((event) => event.startsWith("data: ")).map((event) => event.slice(6))) {
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

async function* moments(body, signal) {
  const began = performance.now();
  const response = await call("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  for await (const chunk of chunksOf(response)) {
    if (chunk.error) throw new Refusal(chunk.error);
    const at = performance.now() - began;
    const choice = chunk.choices[0];
    if (chunk.simsd?.event) yield { at, event: chunk.simsd.event };
    if (choice?.delta.content) yield { at, text: choice.delta.content };
    if (choice?.finish_reason) yield { at, reason: choice.finish_reason };
    if (chunk.usage) yield { at, usage: chunk.usage, stats: chunk.simsd };
  }
}

// Reads ahead of the player, so that slow playing neither delays the server nor changes the measured times.
async function* readAhead(source) {
  const ready = [];
  let wake = () => {};
  let end = null;
  const read = async () => {
    for await (const moment of source) {
      ready.push(moment);
      wake();
    }
  };
  read().then(() => ({}), (error) => ({ error })).then((result) => {
    end = result;
    wake();
  });
  for (;;) {
    while (ready.length) yield ready.shift();
    if (end?.error) throw end.error;
    if (end) return;
    await new Promise((resolve) => { wake = resolve; });
  }
}

const SAID = {
  mask: "masked",
  drafted: "drafted",
  ahead: "drafted behind a block that did not stand",
  refused: "refused",
  accepted: "the draft’s, accepted",
  recovered: "the target’s, instead of a refused one",
  bonus: "the target’s, beside the draft",
  denoised: "denoised without a draft",
  prompt: "end of the prompt",
};

function shown({ token_id: id, text }) {
  if (text === "") return `⟨${id}⟩`; // a special token
  return text.trim() || (text.includes("\n") ? "↵" : "␣");
}

class Lane {
  constructor(method) {
    const copy = find("#lane").content.cloneNode(true);
    this.root = find("section", copy);
    this.board = find(".board", copy);
    this.method = method;
    this.cells = new Map();
    this.count = { tokens: 0, rounds: 0, drafted: 0, accepted: 0 };
    this.text = "";
    find("h2", copy).textContent = method;
    find("#lanes").append(copy);
  }

  open({ start, block_size: size }) {
    if (this.cells.has(start)) return;
    const block = document.createElement("ol");
    block.className = "block";
    for (let index = start; index < start + size; index++) {
      const cell = document.createElement("li");
      cell.className = "cell";
      cell.append(...["token", "was", "hidden"].map((name) => {
        const part = document.createElement(name === "was" ? "s" : "span");
        part.className = name;
        return part;
      }));
      block.append(cell);
      this.cells.set(index, cell);
      this.mark(index, index < 0 ? "prompt" : "mask");
    }
    const item = document.createElement("li");
    item.append(block);
    this.board.append(item);
    this.board.scrollTop = this.board.scrollHeight;
  }

  mark(index, kind, text = "", round = null) {
    const cell = this.cells.get(index);
    const said = SAID[kind] + (round === null ? "" : `, round ${round}`);
    cell.dataset.kind = kind;
    find(".token", cell).textContent = text;
    find(".hidden", cell).textContent = said;
    cell.title = text ? `${text}: ${said}` : said;
  }

  draft(token, round) {
    this.mark(token.index, "drafted", shown(token), round);
    find(".was", this.cells.get(token.index)).textContent = "";
  }

  refuse(token, round) {
    this.mark(token.index, "refused", shown(token), round);
    find(".was", this.cells.get(token.index)).textContent = shown(token);
    this.count.drafted += 1;
  }

  /** A token of a block that was drafted for nothing, because one before it did not stand as drafted. */
  leave(token, round) {
    this.mark(token.index, "ahead", shown(token), round);
    this.count.drafted += 1;
  }

  reveal(token, round) {
    this.mark(token.index, token.kind, shown(token), round);
    this.count.drafted += token.kind === "accepted";
    this.count.accepted += token.kind === "accepted";
    this.count.tokens += token.index >= 0;
  }

  /** Return the actions of a round on the cells, in order; `null` is a pause. */
  actions({ round, drafted, reveals }) {
    const revealed = new Set(reveals.map((token) => token.index));
    const accepted = reveals.filter((token) => token.kind === "accepted");
    const stood = new Set(accepted.map((token) => token.index));
    const refused = drafted.filter((token) => !stood.has(token.index));
    const reveal = (token) => () => this.reveal(token, round);
    const reopen = () => refused.filter((token) => !revealed.has(token.index)).forEach((token) => this.mark(token.index, "mask"));
    const pause = Array(PAUSE_SLOTS).fill(null);
    if (!reveals.length) {
      return [
        ...drafted.map((token) => () => this.draft(token, round)),
        ...pause,
        () => drafted.forEach((token) => this.leave(token, round)),
        ...pause,
        reopen,
      ];
    }
    return [
      ...drafted.map((token) => () => this.draft(token, round)),
      ...(drafted.length ? pause : []),
      ...accepted.map(reveal),
      ...(refused.length ? [() => refused.forEach((token) => this.refuse(token, round)), ...pause] : []),
      ...reveals.filter((token) => token.kind !== "accepted").map(reveal),
      reopen,
      ...pause,
    ];
  }

  /** Play one round between two times of `performance.now()`. */
  async play({ at, event }, from, to, signal) {
    const actions = this.actions(event);
    this.open(event);
    for (const [done, act] of actions.entries()) {
      await until(from + ((to - from) * (done + 1)) / actions.length, signal);
      if (!act) continue;
      act();
      this.count.rounds = event.round;
      this.figures(this.count.tokens / (at / 1000));
    }
  }

  take({ text, reason, usage, stats }) {
    if (text) find(".answer", this.root).textContent = this.text += text;
    if (reason) this.reason = reason;
    if (usage) this.finish(usage.completion_tokens, stats);
  }

  figures(speed, forwards = {}) {
    const { tokens, rounds, drafted, accepted } = this.count;
    const values = {
      speed: Math.round(speed),
      accepted: drafted ? `${Math.round((100 * accepted) / drafted)} %` : "–",
      drafted: drafted ? `of ${drafted}` : "",
      rounds,
      tokens,
      ...forwards,
    };
    for (const [name, value] of Object.entries(values)) find(`[data-figure=${name}]`, this.root).textContent = value;
  }

  finish(tokens, stats) {
    const { rounds, drafted, accepted, target_forwards: target, draft_forwards: draft } = stats;
    this.count = { tokens, rounds, drafted, accepted };
    this.decode_s = stats.decode_s;
    this.figures(stats.decode_s > 0 ? tokens / stats.decode_s : 0, { target, draft });
    for (const [index, cell] of this.cells) cell.classList.toggle("beyond", index >= tokens);
  }

  get summary() {
    const { tokens, rounds, drafted, accepted } = this.count;
    const drafts = drafted ? `, ${accepted} of ${drafted} drafted tokens accepted` : "";
    const end = this.reason === "length" ? "; cut off at max tokens" : "";
    return `${tokens} tokens in ${rounds} rounds${drafts}${end}`;
  }
}

async function until(time, signal) {
  const left = time - performance.now();
  if (left > 0) await new Promise((resolve) => {
    const timer = setTimeout(done, left);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
    signal.addEventListener("abort", done);
  });
  signal.throwIfAborted();
}

async function playAsItComes(lane, body, signal) {
  let free = 0;
  say(`Running ${lane.method}.`);
  for await (const moment of readAhead(moments(body, signal))) {
    if (!moment.event) { lane.take(moment); continue; }
    const from = Math.max(free, performance.now());
    free = from + (isSlow() ? SLOT_MS * lane.actions(moment.event).length : 0);
    await lane.play(moment, from, free, signal);
  }
  say(`Done: ${lane.summary}.`);
}

// Runs the methods one after the other, so that neither slows the other, and then plays both from a common start.
async function race(lanes, bodies, signal) {
  const records = [];
  for (const [i, lane] of lanes.entries()) {
    say(`Running ${lane.method}, with the server to itself; then both are played side by side.`);
    records.push(await record(bodies[i], signal));
  }
  const longest = Math.max(...records.map((moments) => moments.at(-1).at));
  const stretch = isSlow() ? Math.max(1, RACE_MS / longest) : 1;
  say(stretch > 1 ? `Both side by side, ${stretch.toFixed(0)} times slower than they ran.` : "Both side by side, as they ran.");
  const origin = performance.now();
  await Promise.all(lanes.map((lane, i) => replay(lane, records[i], origin, stretch, signal)));
  say(verdict(...lanes));
}

/** Return all moments of an answer. Times exclude queue and prefill, since the second method finds the prompt cached. */
async function record(body, signal) {
  const all = [];
  for await (const moment of moments(body, signal)) all.push(moment);
  const { queue_s: queue, prefill_s: prefill } = all.at(-1).stats;
  return all.map((moment) => ({ ...moment, at: Math.max(1, moment.at - 1000 * (queue + prefill)) }));
}

async function replay(lane, record, origin, stretch, signal) {
  let from = origin;
  for (const moment of record) {
    const to = origin + moment.at * stretch;
    if (moment.event) await lane.play(moment, from, to, signal);
    else lane.take(moment);
    from = to;
  }
}

function verdict(a, b) {
  const [first, last] = a.decode_s <= b.decode_s ? [a, b] : [b, a];
  const answers = a.text === b.text ? "The answers are the same." : "The answers differ.";
  return `${first.method} was first: ${first.decode_s.toFixed(2)} s of decoding against ${last.decode_s.toFixed(2)} s. ${answers}`;
}

function say(text) {
  find("#status").textContent = text;
}

function numbers() {
  const given = {};
  for (const input of document.querySelectorAll("[data-param]")) {
    const { param } = input.dataset;
    const text = input.value.trim();
    if (!text) continue;
    given[param] = Number(text);
    if (!Number.isFinite(given[param]) || (Number.isInteger(given[param]) && !Number.isSafeInteger(given[param])))
      throw new Refusal({ message: `${param} must be a number of at most 15 digits; got “${text}”.`, param });
  }
  return given;
}

function bodyFor(method) {
  if (!prompt.value.trim()) throw new Refusal({ message: "Type a prompt first.", param: "messages" });
  const { "simsd.gamma": gamma, ...settings } = numbers();
  return {
    messages: [{ role: "user", content: prompt.value }],
    ...settings,
    stream: true,
    stream_options: { include_usage: true },
    simsd: { method, events: true, ...(gamma !== undefined && method !== "vanilla" && { gamma }) },
  };
}

let running = null;

async function start() {
  running?.abort();
  const controller = (running = new AbortController());
  clearError();
  const key = find("#key").value.trim();
  if (key) sessionStorage.setItem(KEY, key);
  find("#stop").disabled = false;
  find("#lanes").replaceChildren();
  try {
    if (!find("#model").textContent) await introduce();
    const methods = [find("#method").value, find("#rival").value].filter(Boolean);
    const bodies = methods.map(bodyFor);
    const lanes = methods.map((method) => new Lane(method));
    await (lanes.length === 2 ? race(lanes, bodies, controller.signal) : playAsItComes(lanes[0], bodies[0], controller.signal));
  } catch (error) {
    if (controller === running) fail(error);
    controller.abort();
  }
  if (controller === running) find("#stop").disabled = true;
}

function stop() {
  running?.abort();
  find("#run").focus();
}

function clearError() {
  find("#error").textContent = "";
  for (const field of document.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.removeAttribute("aria-errormessage");
  }
}

function fail(error) {
  if (error.name === "AbortError") return say("Stopped.");
  say("");
  for (const lane of document.querySelectorAll(".lane")) if (!find(".cell", lane)) lane.remove();
  if (!(error instanceof Refusal)) console.error(error);
  find("#error").textContent = error.message;
  if (error.status === 401) find("#key-field").hidden = false;
  const field = error.status === 401 ? find("#key") : fieldOf(error.param);
  field?.setAttribute("aria-invalid", "true");
  field?.setAttribute("aria-errormessage", "error");
  field?.focus();
}

function fieldOf(param) {
  if (param?.startsWith("messages")) return prompt;
  return find(`[data-param="${CSS.escape(param ?? "")}"]`);
}

async function introduce() {
  const { data } = await (await call("v1/models")).json();
  const { id, max_model_len: context } = data[0];
  find("#model").textContent = context ? `${id}, ${context} tokens of context` : id;
}

/** A method is not raced against itself. */
function offerRivals() {
  const [method, rival] = [find("#method").value, find("#rival")];
  for (const option of rival.options) option.disabled = option.value === method;
  if (rival.value === method) rival.value = "";
}

find("#ask").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  start();
});
for (const example of document.querySelectorAll(".example")) example.addEventListener("click", () => {
  prompt.value = example.textContent;
  start();
});
find("#stop").addEventListener("click", stop);
find("#method").addEventListener("change", offerRivals);
if (matchMedia("(prefers-reduced-motion: reduce)").matches) find("[name=pace][value=live]").checked = true;
offerRivals();
introduce().catch(fail);
