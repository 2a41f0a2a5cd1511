// The conversation: messages in order, and the answer that arrives at its end.

import { announce, h, note } from "./shared/dom.js";
import { count } from "./shared/format.js";
import { chat, metrics } from "./client.js";
import { engineCounts, mbu, shown, Stopwatch } from "./figures.js";
import { MessageView } from "./message.js";
import { requestBody, SettingError } from "./request.js";
import { reveal } from "./settings.js";
import { exchangeOf, keepExchange, save, state } from "./store.js";
import { addCalls } from "./tool_calls.js";

// Characters of a response that the raw view keeps.
const MOST_RAW = 2_000_000;
// How often MBU is read while an answer arrives.
const METRICS_MS = 1000;
// Closer to its end than this many pixels, the conversation follows the answer.
const NEAR_PX = 80;

const SUGGESTIONS = [
  "Write a function that reverses a list.",
  "What does zip do in Python?",
  "How do I read a file line by line?",
];

// What else can be tried: its name, and the section of the settings that turns it on.
const TRIALS = [
  ["Answer in JSON of a schema", "schema"],
  ["Call a tool", "tools"],
  ["Colour tokens by probability", "logprobs"],
];

export class Conversation {
  // onTry: called with a section of the settings; onRunning: called with whether an answer is arriving; onFigures: when its figures have changed;
  // onRefused: with an error's status.
  constructor(root, { onTry, onRunning, onFigures, onRefused }) {
    this.root = root;
    this.onTry = onTry;
    this.onRunning = onRunning;
    this.onFigures = onFigures;
    this.onRefused = onRefused;
    this.views = new Map();
    this.control = null;
    this.latest = h(
      "button",
      { type: "button", id: "latest", hidden: true, onclick: () => this.toEnd() },
      "Latest message",
    );
    root.addEventListener("scroll", () => {
      this.latest.hidden = this.isNearEnd();
    });
    this.draw();
  }

  toEnd() {
    this.root.scrollTop = this.root.scrollHeight;
  }

  get running() {
    return this.control !== null;
  }

  draw() {
    const { messages } = state;
    const elements = messages.map((message, at) => {
      let view = this.views.get(message);
      if (!view) {
        view = new MessageView(message, this.actsOf(message));
        this.views.set(message, view);
      }
      view.draw(at === messages.length - 1);
      return view.element;
    });
    for (const message of [...this.views.keys()])
      if (!messages.includes(message)) this.views.delete(message);
    if (!elements.length) elements.push(this.welcome());
    // What is in its place already stays there, with the focus that it may have.
    const { children } = this.root;
    elements.forEach((element, at) => {
      if (children[at] !== element) this.root.insertBefore(element, children[at] ?? null);
    });
    while (children.length > elements.length) this.root.lastChild.remove();
  }

  welcome() {
    return h(
      "div",
      { class: "welcome" },
      h("h2", {}, "Ask the model something"),
      h(
        "p",
        { class: "quiet" },
        "The conversation stays in this browser. Esc stops an answer; Settings has the rest.",
      ),
      h(
        "ul",
        {},
        SUGGESTIONS.map((text) =>
          h("li", {}, h("button", { type: "button", onclick: () => this.say(text) }, text)),
        ),
      ),
      h("h3", {}, "Or see more of it"),
      h(
        "ul",
        {},
        TRIALS.map(([name, part]) =>
          h("li", {}, h("button", { type: "button", onclick: () => this.onTry(part) }, name)),
        ),
      ),
    );
  }

  actsOf(message) {
    const at = () => state.messages.indexOf(message);
    // Whether the conversation could be changed.
    const change = (act) => {
      if (this.running) {
        note("Stop the answer first.", "warn");
        return false;
      }
      act();
      this.keep();
      this.draw();
      return true;
    };
    const cut = (end) => state.messages.splice(end);
    return {
      edit: (text, send) => {
        const changed = change(() => {
          message.content = text;
          if (send) cut(at() + 1);
        });
        if (changed && send) this.answer();
        return changed;
      },
      again: () => {
        if (change(() => cut(message.role === "assistant" ? at() : at() + 1))) this.answer();
      },
      remove: () =>
        change(() => {
          // The results of an answer's calls mean nothing without it.
          let end = at() + 1;
          if (message.calls?.length) while (state.messages[end]?.role === "tool") end += 1;
          state.messages.splice(at(), end - at());
        }),
      results: (texts) => {
        const changed = change(() =>
          state.messages.push(
            ...message.calls.map(({ id, name }, index) => ({
              role: "tool",
              id,
              name,
              content: texts[index],
            })),
          ),
        );
        if (changed) this.answer();
      },
    };
  }

  keep() {
    if (!save()) note("This browser has no more room: the conversation is not kept.", "warn");
  }

  // Whether the message could be sent.
  say(text) {
    state.messages.push({ role: "user", content: text });
    if (this.running || this.request() === null) {
      state.messages.pop();
      return false;
    }
    this.keep();
    this.draw();
    this.answer();
    return true;
  }

  // The request for the next answer; null where a setting is wrong, which is then shown.
  request() {
    try {
      return requestBody(state);
    } catch (error) {
      if (!(error instanceof SettingError)) throw error;
      reveal(error.field);
      note(error.message, "bad");
      return null;
    }
  }

  clear() {
    this.stop();
    state.messages = [];
    this.keep();
    this.draw();
  }

  stop() {
    this.control?.abort();
  }

  async answer() {
    const body = this.running ? null : this.request();
    if (body === null) return;
    const schema = body.response_format?.json_schema?.schema;
    const message = { role: "assistant", content: "", ...(schema !== undefined && { schema }) };
    keepExchange(message, { body, events: [], length: 0 });
    state.messages.push(message);
    this.draw();
    const view = this.views.get(message);
    view.busy(true);
    view.buttons.replaceChildren();
    view.waiting("waiting");
    this.root.lastChild.scrollIntoView({ block: "end" });
    this.control = new AbortController();
    this.onRunning(true);
    announce("The answer is on its way.");
    try {
      await this.receive(message, view, body, this.control.signal);
    } catch (error) {
      if (error.name === "AbortError") message.stopped = true;
      else {
        const { status = 0, message: words, param, code } = error;
        message.error = { status, message: words, param, code };
        exchangeOf(message).refusal = error.body;
        this.onRefused(status);
      }
    }
    this.control = null;
    this.onRunning(false);
    this.keep();
    const follows = this.isNearEnd();
    this.draw();
    if (follows) this.toEnd();
    const { tokens } = message.figures || {};
    announce(
      message.error ? "There is no answer." : `The answer is complete: ${count(tokens)} tokens.`,
    );
  }

  // Throws what ends the answer before its end; the message has what arrived until then.
  async receive(message, view, body, signal) {
    const exchange = exchangeOf(message);
    const watch = new Stopwatch(performance.now());
    const engine = new EngineWatch();
    let figures = null;
    let ended = false;
    const update = (final) => {
      message.figures = { ...watch.figures(final), mbu: engine.share };
      const arrives = { arriving: !ended, measured: engine.measures };
      view.answer.figures(shown(message.figures, arrives));
      this.onFigures();
    };
    // At most once a frame: tokens may arrive faster.
    let frame = 0;
    const updateSoon = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        update(figures);
      });
    };
    const raw = (data) => {
      exchange.length += data.length;
      exchange.cut ||= exchange.length > MOST_RAW;
      if (!exchange.cut) exchange.events.push(data);
    };
    const ticks = setInterval(() => engine.read(), METRICS_MS);
    try {
      await engine.read();
      watch.started_ms = performance.now();
      update(null);
      for await (const chunk of chat(body, signal, raw)) {
        const progress = chunk.prompt_progress;
        if (progress && watch.first_ms === undefined)
          view.waiting(
            `reading the prompt: ${count(progress.processed)} of ${count(progress.total)}`,
          );
        const choice = chunk.choices?.[0];
        const piece = pieceOf(choice);
        watch.take(chunk, piece !== null, performance.now());
        if (piece) this.grow(message, view, piece);
        if (choice?.finish_reason) message.finish = choice.finish_reason;
        figures = choice?.metrics || figures;
        if (piece || chunk.usage) updateSoon();
      }
    } finally {
      clearInterval(ticks);
      await engine.read();
      cancelAnimationFrame(frame);
      ended = true;
      update(figures);
    }
  }

  grow(message, view, piece) {
    const follows = this.isNearEnd();
    if (!message.content && !message.reasoning && !message.calls) view.waiting("");
    if (piece.reasoning) message.reasoning = (message.reasoning || "") + piece.reasoning;
    if (piece.content) message.content += piece.content;
    if (piece.calls) addCalls((message.calls ??= []), piece.calls);
    view.grow(piece);
    if (follows)
      requestAnimationFrame(() => this.toEnd());
  }

  isNearEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.root;
    return scrollHeight - scrollTop - clientHeight < NEAR_PX;
  }
}

// What a choice of a chunk adds to the answer; null where that is nothing.
function pieceOf(choice) {
  const delta = choice?.delta || {};
  // Both names may be there, with the same text.
  const reasoning = delta.reasoning ?? delta.reasoning_content;
  const tokens = choice?.logprobs?.content;
  const piece = {
    ...(reasoning && { reasoning }),
    ...(delta.content && { content: delta.content }),
    ...(delta.tool_calls?.length && { calls: delta.tool_calls }),
    ...(tokens?.length && { tokens }),
  };
  return Object.keys(piece).length ? piece : null;
}

// MBU since its first reading; undefined where the server does not know what its machine reads.
class EngineWatch {
  constructor() {
    this.first = null;
    this.share = undefined;
    this.useless = false;
  }

  // Whether there will be a share.
  get measures() {
    return this.first !== null && !this.useless;
  }

  async read() {
    if (this.useless) return;
    try {
      const counts = engineCounts(await metrics());
      this.useless = !counts.limit;
      if (this.first) this.share = mbu(this.first, counts);
      else this.first = counts;
    } catch {
      this.useless = true; // the figure is left out; the answer itself reports what is wrong
    }
  }
}
