// An answer as it arrives: thoughts to unfold, the text, calls of tools, an error, what it took.

import { h } from "./dom.js";
import { MarkdownView } from "./markdown.js";

export class AnswerView {
  constructor() {
    this.body = h("div", { class: "answer", dir: "auto" });
    this.thought = h(
      "details",
      { class: "thought", hidden: true },
      h("summary", {}, "Thoughts"),
      h("div"),
    );
    this.calls = h("div", { class: "calls" });
    this.problem = h("p", { class: "bad problem", role: "alert" });
    this.took = h("dl", { class: "took" });
    this.elements = [this.thought, this.body, this.calls, this.problem, this.took];
    this.text = "";
    this.markdown = new MarkdownView(this.body);
    this.frame = 0;
  }

  // The text grows by a piece; it is drawn once a frame, however many pieces arrive.
  append(piece) {
    this.text += piece;
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.markdown.show(this.text);
  }

  // Other elements instead of the text, until it is drawn again.
  replace(...elements) {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.body.replaceChildren(...elements);
    this.markdown.forget();
  }

  reason(piece) {
    this.thought.hidden = false;
    this.thought.lastChild.append(piece);
  }

  fail(message) {
    this.problem.textContent = message;
  }

  // pairs: [name, value, title, width], the width of the value being in characters.
  figures(pairs) {
    this.took.replaceChildren(
      ...pairs.map(([name, value, title, width]) => {
        const shown = h("dd", {}, value);
        if (width) shown.style.setProperty("--width", String(width));
        return h("div", { title }, h("dt", {}, name), shown);
      }),
    );
  }
}
