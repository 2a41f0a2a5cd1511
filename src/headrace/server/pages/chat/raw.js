// A request and its answer as they were on the wire.

import { copyButton, dialog, h, segments } from "./shared/dom.js";
import { CHAT } from "./client.js";
import { curl } from "./request.js";
import { key } from "./store.js";

// exchange: {body, events, cut, refusal}, events being the data of each event as it was sent, refusal
// the body of an error instead of any.
export function showRaw(exchange) {
  const url = new URL(CHAT, document.baseURI).href;
  const texts = {
    request: JSON.stringify(exchange.body, null, 2),
    curl: curl(url, exchange.body, Boolean(key.get())),
    response: exchange.refusal
      ? JSON.stringify(exchange.refusal, null, 2)
      : exchange.events.map((data) => `data: ${data}`).join("\n\n"),
  };
  let shown = "request";
  const pre = h("pre", { class: "raw", tabindex: "0", "aria-label": "As sent" }, texts[shown]);
  const choose = (name) => {
    shown = name;
    pre.textContent = texts[name] || "Nothing arrived.";
  };
  dialog(
    "Request and response",
    () => [
      h(
        "div",
        { class: "row" },
        segments(
          "What to show",
          [
            ["request", "Request"],
            ["curl", "As curl"],
            ["response", "Response"],
          ],
          shown,
          choose,
        ),
        copyButton(() => texts[shown]),
      ),
      pre,
      exchange.cut && h("p", { class: "quiet" }, "The response goes on; this much of it is kept."),
    ],
    { kind: "wide" },
  );
}
