// A message of the conversation: what it says, and what can be done with it.

import { AnswerView } from "./shared/answer.js";
import { copyButton, h } from "./shared/dom.js";
import { codeBlock } from "./shared/markdown.js";
import { shown } from "./figures.js";
import { TokensView } from "./logprobs.js";
import { showRaw } from "./raw.js";
import { checkSchema } from "./schema_check.js";
import { exchangeOf } from "./store.js";
import { drawCalls } from "./tool_calls.js";

const NAMES = { user: "You", assistant: "Model", tool: "Tool" };
const ENDS = {
  length: "cut at the token limit",
  timeout: "cut at the time limit",
  content_filter: "withheld",
};

const IN_THOUGHTS =
  "Length: all tokens went to reasoning. Raise Max tokens, or set Reasoning tokens, in Sampling.";

const endsInThoughts = ({ content, calls, finish, figures }) =>
  finish === "length" && figures?.thoughts > 0 && !content && !calls?.length;

const button = (text, onclick, attributes = {}) =>
  h("button", { type: "button", class: "quiet", ...attributes, onclick }, text);

const mark = (tone, words) => h("p", { class: `mark ${tone}` }, words);

// What a schema says of an answer: whether it is whole JSON that fits.
function judgement({ content, finish, stopped, schema }) {
  let value;
  try {
    value = JSON.parse(content);
  } catch (error) {
    if (finish === "length" || finish === "timeout" || stopped)
      return mark("warn", "The answer was cut before its JSON was whole.");
    return mark("warn", `This is not valid JSON: ${error.message}`);
  }
  const { fault, unread } = checkSchema(schema, value);
  if (fault) return mark("warn", `This is JSON that does not fit the schema: ${fault}.`);
  if (!unread.length) return mark("good", "Fits the schema");
  return mark("good", `Fits the schema, as far as this page reads it (not ${unread.join(", ")})`);
}

// Where a schema was sent: the answer as JSON, and whether it fits.
function drawJson(answer, message, tokens) {
  let block;
  try {
    block = codeBlock(JSON.stringify(JSON.parse(message.content), null, 2), "JSON");
  } catch {
    block = codeBlock(message.content, "text");
  }
  answer.replace(...(tokens ? [tokens.content.element, tokens.others] : [block]), judgement(message));
}

export class MessageView {
  // acts: what its buttons do: edit, again, remove, results.
  constructor(message, acts) {
    this.message = message;
    this.acts = acts;
    this.answer = new AnswerView();
    this.tokens = null;
    this.begun = false;
    this.editing = false;
    this.frame = 0;
    const name = NAMES[message.role];
    this.tags = h("small", { class: "tags" }, message.role === "tool" && message.name);
    this.buttons = h("div", { class: "row acts" });
    this.element = h(
      "article",
      { class: `message ${message.role}`, "aria-label": name },
      h("div", { class: "card-head" }, h("h2", {}, name), this.tags, this.buttons),
      this.answer.elements,
    );
  }

  // While it arrives: what the answer has now, in addition to before.
  grow({ reasoning, content, calls, tokens }) {
    const { thought } = this.answer;
    // Thoughts are open until the answer itself begins, unless they were folded by hand.
    if (reasoning && thought.hidden) thought.open = true;
    if (reasoning && !tokens && !this.tokens) this.answer.reason(reasoning);
    if ((content || calls) && !this.begun) {
      this.begun = true;
      thought.open = false;
    }
    if (tokens) this.tokens ??= this.startTokens();
    if (this.tokens) {
      this.answer.thought.hidden &&= !reasoning;
      this.tokens.take({ reasoning, content, tokens });
    }
    if (content && !this.tokens) this.answer.append(content);
    if (calls)
      this.frame ||= requestAnimationFrame(() => {
        this.frame = 0;
        drawCalls(this.answer.calls, this.message.calls, null);
      });
  }

  startTokens() {
    const tokens = new TokensView();
    this.answer.replace(tokens.content.element, tokens.others);
    this.answer.thought.lastChild.replaceChildren(tokens.reasoning.element);
    return tokens;
  }

  waiting(words) {
    this.tags.textContent = words;
  }

  busy(is) {
    this.element.setAttribute("aria-busy", String(is));
  }

  // The message as it is now. last: whether it is the conversation's last.
  draw(last) {
    const { message, answer } = this;
    this.last = last;
    if (this.editing) return;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.busy(false);
    if (message.role === "assistant") this.drawAnswer(last);
    else answer.replace(h("p", { class: message.role === "tool" && "code" }, message.content));
    this.drawButtons();
  }

  drawAnswer(last) {
    const { message, answer } = this;
    answer.thought.hidden = !message.reasoning;
    if (this.tokens) this.tokens.take({}, true);
    else answer.thought.lastChild.textContent = message.reasoning || "";
    answer.text = message.content;
    const hasSchema = message.schema !== undefined;
    if (hasSchema && message.content) drawJson(answer, message, this.tokens);
    else if (this.tokens) answer.replace(this.tokens.content.element, this.tokens.others);
    else answer.draw();
    if (endsInThoughts(message))
      answer.replace(mark("warn", IN_THOUGHTS), ...(this.tokens ? [this.tokens.others] : []));
    const unanswered = last && !message.error && message.calls?.length;
    drawCalls(answer.calls, message.calls || [], unanswered ? this.acts.results : null);
    answer.fail(message.error ? problem(message.error) : "");
    answer.figures(shown(message.figures || {}));
    this.waiting([ENDS[message.finish], message.stopped && "stopped"].filter(Boolean).join(", "));
  }

  drawButtons() {
    const { message, acts } = this;
    const exchange = exchangeOf(message);
    const again = message.role === "assistant" ? "Try again" : "Resend";
    this.buttons.replaceChildren(
      ...[
        exchange && button("Raw", () => showRaw(exchange)),
        message.content && copyButton(() => message.content),
        button("Edit", () => this.edit()),
        message.role !== "tool" && button(again, acts.again),
        button("Delete", acts.remove),
      ].filter(Boolean),
    );
  }

  edit() {
    const { message, answer } = this;
    const input = h("textarea", {
      rows: Math.min(16, Math.max(3, message.content.split("\n").length)),
      value: message.content,
      "aria-label": "Text of the message",
    });
    const done = (send) => {
      if (input.value !== message.content) this.tokens = null;
      this.editing = false;
      this.editing = !this.acts.edit(input.value, send);
    };
    const cancel = () => {
      this.editing = false;
      this.draw(this.last);
    };
    this.editing = true;
    const form = h(
      "form",
      {
        class: "edit",
        onsubmit: (event) => {
          event.preventDefault();
          done(message.role !== "assistant");
        },
        onkeydown: (event) => {
          if (event.key === "Escape") cancel();
          else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
        },
      },
      input,
      h(
        "div",
        { class: "row end" },
        button("Cancel", cancel),
        message.role !== "assistant" && button("Save only", () => done(false)),
        h(
          "button",
          { class: "primary" },
          message.role === "assistant" ? "Save" : "Save and resend",
        ),
      ),
    );
    answer.replace(form);
    this.buttons.replaceChildren();
    input.focus();
  }
}

// An error as the server words it, with the field and the code that it names.
function problem({ status, message, param, code }) {
  const about = [status && `HTTP ${status}`, code, param && `field ${param}`].filter(Boolean);
  return about.length ? `${message}\n(${about.join(" · ")})` : message;
}
