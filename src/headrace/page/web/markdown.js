// The Markdown that models write, as elements. Text is only ever set as text, and links lead nowhere.
//
// It is drawn again with every piece of a stream, so blocks that did not change stay as they are, and
// each pass over a text takes time in proportion to its length, whatever is in it.

import { copyButton, h } from "./dom.js";

const FENCE = /^\s*(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const RULE = /^\s*([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|(\d{1,9})[.)])\s+(.*)$/;
const QUOTE = /^\s*>\s?(.*)$/;
const DIVIDER = /^\s*\|?(?:\s*:?-+:?\s*\|)+\s*:?-*:?\s*$/;
// Deeper lists and quotes are drawn at this depth.
const DEEPEST = 6;

export class MarkdownView {
  constructor(element) {
    this.element = element;
    this.shown = [];
  }

  // What is in the element now was not drawn here.
  forget() {
    this.shown = [];
  }

  show(text) {
    const blocks = blocksOf(text.split("\n"));
    const keys = blocks.map((block) => `${block.kind} ${block.lines.join("\n")}`);
    let same = 0;
    while (same < keys.length && keys[same] === this.shown[same]) same += 1;
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    for (const block of blocks.slice(same)) this.element.append(drawn(block, 0));
    this.shown = keys;
  }
}

// Blocks.

function kindOf(line, next) {
  if (!line.trim()) return "blank";
  if (HEADING.test(line)) return "heading";
  if (RULE.test(line)) return "rule";
  if (ITEM.test(line)) return "list";
  if (QUOTE.test(line)) return "quote";
  if (line.includes("|") && next !== undefined && DIVIDER.test(next)) return "table";
  return "paragraph";
}

// A list takes in lines that are indented or follow an item without a blank line between.
function goesOn(kind, line, next, before) {
  const own = kindOf(line, next);
  if (FENCE.test(line)) return false;
  if (kind === "list") {
    if (own === "blank") return next !== undefined && (ITEM.test(next) || /^\s{2,}\S/.test(next));
    if (own === "list" || /^\s{2,}/.test(line)) return true;
    return own === "paragraph" && before.trim() !== "";
  }
  if (kind === "table") return line.includes("|");
  if (kind === "quote") return own === "quote";
  return kind === "paragraph" && own === "paragraph";
}

function blocksOf(lines) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const fence = FENCE.exec(lines[at]);
    const start = at;
    at += 1;
    if (fence) {
      while (at < lines.length && !closes(lines[at], fence[1])) at += 1;
      blocks.push({ kind: "code", lines: lines.slice(start, at), closed: at < lines.length });
      at += 1;
      continue;
    }
    const kind = kindOf(lines[start], lines[at]);
    if (kind === "blank") continue;
    while (at < lines.length && goesOn(kind, lines[at], lines[at + 1], lines[at - 1])) at += 1;
    blocks.push({ kind, lines: lines.slice(start, at) });
  }
  return blocks;
}

const closes = (line, mark) => {
  const found = line.trim();
  return found.startsWith(mark) && found === mark[0].repeat(found.length);
};

const DRAWN = {
  code: ({ lines }) => codeBlock(lines.slice(1).join("\n"), FENCE.exec(lines[0])[2]),
  heading: ({ lines }) => {
    const [, marks, text] = HEADING.exec(lines[0]);
    // Headings of the page itself are above those of an answer.
    return h(`h${Math.min(6, marks.length + 2)}`, {}, inline(text));
  },
  rule: () => h("hr"),
  list: ({ lines }, depth) => list(lines, depth),
  quote: ({ lines }, depth) =>
    h(
      "blockquote",
      {},
      children(
        lines.map((line) => QUOTE.exec(line)[1]),
        depth,
      ),
    ),
  table: ({ lines }) => table(lines),
  paragraph: ({ lines }) => h("p", {}, inline(lines.join("\n"))),
};

const drawn = (block, depth) => DRAWN[block.kind](block, depth);

function children(lines, depth) {
  if (depth >= DEEPEST) return [h("p", {}, inline(lines.join("\n")))];
  return blocksOf(lines).map((block) => drawn(block, depth + 1));
}

export function codeBlock(text, language = "") {
  return h(
    "div",
    { class: "code-block" },
    h(
      "div",
      { class: "code-head" },
      h("span", {}, language),
      copyButton(() => text, "Copy", { "aria-label": "Copy the code" }),
    ),
    h("pre", { tabindex: "0" }, h("code", {}, text)),
  );
}

// Items at the least indentation; what is indented further is within the item before it.
function list(lines, depth) {
  const [, indent, , first] = ITEM.exec(lines[0]);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent.length + 1) items.push([item[4]]);
    else items.at(-1).push(line);
  }
  return h(
    first === undefined ? "ul" : "ol",
    { start: first !== undefined && first !== "1" && first },
    items.map(([text, ...rest]) => {
      const least = Math.min(
        ...rest.filter((line) => line.trim()).map((line) => line.search(/\S/)),
      );
      const inner = rest.map((line) => line.slice(Math.min(least, line.length)));
      const lazy = inner.findIndex((line) => kindOf(line) !== "paragraph" || FENCE.test(line));
      const own = lazy < 0 ? inner.length : lazy;
      const words = [text, ...inner.slice(0, own)].join("\n");
      return h("li", {}, inline(words), own < inner.length && children(inner.slice(own), depth));
    }),
  );
}

function table([head, divider, ...rows]) {
  const cells = (line) =>
    line
      .trim()
      .replace(/^\||\|$/g, "")
      .split("|");
  const sides = cells(divider).map((cell) => {
    const [from, to] = [cell.trim().startsWith(":"), cell.trim().endsWith(":")];
    return to && (from ? "center" : "end");
  });
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          cells(head).map((cell, at) => h("th", { class: sides[at] }, inline(cell.trim()))),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            cells(row).map((cell, at) => h("td", { class: sides[at] }, inline(cell.trim()))),
          ),
        ),
      ),
    ),
  );
}

// Text within a block.

const MARKS = [
  ["**", "strong"],
  ["~~", "s"],
  ["*", "em"],
  ["_", "em"],
];
const WORD = /[\p{L}\p{N}]/u;

// Nodes of a text with code spans, emphasis, and links as their text. A mark that is not closed is
// text; once a mark was not found it is not looked for again, which keeps this linear.
function inline(text, without = []) {
  const nodes = [];
  const absent = new Set();
  let plain = "";
  const push = (node) => {
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(node);
  };
  const close = (mark, from) => {
    let end = absent.has(mark) ? -1 : text.indexOf(mark, from);
    // A single one closes before the next single one; two in a row are another mark.
    while (mark.length === 1 && mark !== "`" && end >= 0 && text[end + 1] === mark)
      end = text.indexOf(mark, end + 2);
    if (end < 0) absent.add(mark);
    return end;
  };
  let at = 0;
  while (at < text.length) {
    const letter = text[at];
    if (letter === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] || "")) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    if (letter === "`") {
      let length = 1;
      while (text[at + length] === "`") length += 1;
      const mark = "`".repeat(length);
      const end = close(mark, at + length);
      if (end > 0) push(h("code", {}, text.slice(at + length, end)));
      else plain += mark;
      at = end > 0 ? end + length : at + length;
      continue;
    }
    const [mark, tag] = MARKS.find(([one]) => text.startsWith(one, at)) || [];
    if (mark && !without.includes(mark)) {
      const inside = at + mark.length;
      const opens =
        /\S/.test(text[inside] || " ") && !(letter === "_" && WORD.test(text[at - 1] || ""));
      const end = opens ? close(mark, inside + 1) : -1;
      if (end > 0 && /\S/.test(text[end - 1])) {
        push(h(tag, {}, inline(text.slice(inside, end), [...without, mark])));
        at = end + mark.length;
      } else {
        plain += mark;
        at = inside;
      }
      continue;
    }
    plain += letter;
    at += 1;
  }
  if (plain) nodes.push(plain);
  return nodes;
}
