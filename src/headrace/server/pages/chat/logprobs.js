// An answer's tokens by their log probability: the less likely, the stronger the colour. The token
// under the pointer, or chosen with the arrow keys, shows its rivals.

import { h } from "./shared/dom.js";
import { Placing } from "./placing.js";

const share = (logprob) => {
  const value = 100 * Math.exp(logprob);
  return `${value >= 99.95 ? "100" : value.toPrecision(value < 0.1 ? 1 : 3)} %`;
};
const visible = (text) => JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"') || "(nothing)";

// The tokens of an answer: those of its thoughts, those of its text, and the others, folded.
export class TokensView {
  constructor() {
    this.placing = new Placing();
    this.reasoning = new TokenRow("Thoughts by probability");
    this.content = new TokenRow("Tokens");
    this.apart = new TokenRow("Outside the text");
    this.summary = h("summary", {});
    this.others = h("details", { class: "apart", hidden: true }, this.summary, this.apart.element);
  }

  // piece: {reasoning, content, tokens}; final: nothing more arrives.
  take(piece, final = false) {
    for (const [place, text, token] of this.placing.take(piece, final)) {
      if (place === "apart") this.apart.append(visible(text), token);
      else this[place].append(text, token);
    }
    const count = this.apart.spans.length;
    this.others.hidden = !count;
    this.summary.textContent = `${count} ${count === 1 ? "token" : "tokens"} outside the text`;
    if (!final) return;
    // What no token has written, such as a text that the server has changed, is shown as it is.
    const { left } = this.placing;
    for (const name of ["reasoning", "content"]) this[name].element.append(left[name]);
    left.reasoning = left.content = "";
  }
}

class TokenRow {
  constructor(name) {
    this.tip = h("div", { class: "tip", role: "tooltip", id: "token-tip", hidden: true });
    this.spans = [];
    this.at = -1;
    this.element = h("div", {
      class: "tokens",
      tabindex: "0",
      role: "group",
      "aria-label": `${name}; arrow keys show their probabilities`,
      onkeydown: (event) => this.move(event),
      onblur: () => this.hide(),
      onmouseover: (event) => this.hover(event),
      onmouseleave: () => this.hide(),
    });
  }

  append(text, token) {
    const span = h("span", { class: "token" }, text);
    span.style.setProperty("--p", String(Math.exp(token.logprob)));
    this.spans.push([span, token]);
    this.element.append(span);
  }

  hover({ target }) {
    const at = this.spans.findIndex(([span]) => span === target);
    if (at >= 0) this.show(at);
  }

  move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") this.hide();
    if (!step || !this.spans.length) return;
    event.preventDefault();
    this.show(Math.max(0, Math.min(this.spans.length - 1, this.at + step)));
  }

  show(at) {
    this.spans[this.at]?.[0].classList.remove("chosen");
    this.at = at;
    const [span, token] = this.spans[at];
    span.classList.add("chosen");
    const rivals = token.top_logprobs || [];
    const rows = rivals.some((rival) => rival.token === token.token) ? rivals : [token, ...rivals];
    this.tip.replaceChildren(
      h("p", {}, h("b", { class: "code" }, visible(token.token)), ` ${share(token.logprob)}`),
      h("small", {}, `log probability ${token.logprob.toFixed(4)}`),
      h(
        "ul",
        {},
        rows.map((rival) => {
          const bar = h("i");
          bar.style.setProperty("--p", String(Math.exp(rival.logprob)));
          const kind = rival.token === token.token ? "own" : "";
          const name = h("span", { class: "code" }, visible(rival.token));
          return h(
            "li",
            { class: kind },
            name,
            h("span", { class: "n" }, share(rival.logprob)),
            bar,
          );
        }),
      ),
    );
    document.body.append(this.tip);
    this.tip.hidden = false;
    this.element.setAttribute("aria-describedby", this.tip.id);
    const box = span.getBoundingClientRect();
    const own = this.tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, innerWidth - own.width - 8));
    const below = box.bottom + own.height + 8 < innerHeight;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${Math.max(8, below ? box.bottom + 6 : box.top - own.height - 6)}px`;
  }

  hide() {
    this.spans[this.at]?.[0].classList.remove("chosen");
    this.at = -1;
    this.tip.remove();
    this.element.removeAttribute("aria-describedby");
  }
}
