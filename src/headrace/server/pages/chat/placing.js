// Which part of an answer each of its tokens wrote, found while both arrive.
//
// A token is of the text that goes on with it: the thoughts, or the answer. What no text has (a
// control token such as <|im_end|>, the marks around thoughts and calls, a call itself) is apart.

const TEXTS = ["reasoning", "content"];

export class Placing {
  constructor() {
    this.queue = [];
    // Of each text: what has arrived and no token has written yet, and whether any has.
    this.left = { reasoning: "", content: "" };
    this.begun = { reasoning: false, content: false };
    this.place = TEXTS[0];
    // A character may be cut between tokens: their bytes become text together.
    this.decoder = new TextDecoder();
  }

  // What arrives; returns [place, text, token] of each token whose place is known now, place being
  // "reasoning", "content" or "apart". final: nothing more arrives.
  take({ reasoning = "", content = "", tokens = [] }, final = false) {
    this.left.reasoning += reasoning;
    this.left.content += content;
    for (const token of tokens) {
      const { bytes } = token;
      const text = bytes
        ? this.decoder.decode(new Uint8Array(bytes), { stream: true })
        : token.token;
      this.queue.push([text, token]);
    }
    const placed = [];
    while (this.queue.length) {
      const found = this.placeOf(this.queue[0][0], final);
      if (found === null) break;
      placed.push([...found, this.queue.shift()[1]]);
    }
    return placed;
  }

  // [place, the text that it has there]; null where more has to arrive first.
  placeOf(text, final) {
    const [here, other] = [this.place, TEXTS.find((name) => name !== this.place)];
    if (!this.left[here] && this.left[other]) {
      this.place = other;
      return this.placeOf(text, final);
    }
    const left = this.left[here];
    // Texts begin without the white space that a model may write before them.
    const own = this.begun[here] ? text : text.trimStart();
    if (left && left.startsWith(own) && (own || !text)) return this.write(here, own);
    if (!left && !text && this.begun[here]) return this.write(here, "");
    if (own && left && own.startsWith(left)) {
      // Its end is still to come, or belongs to no text.
      return final || this.left[other] ? this.write(here, left) : null;
    }
    return left || final ? ["apart", text] : null;
  }

  write(place, text) {
    this.begun[place] ||= text !== "";
    this.left[place] = this.left[place].slice(text.length);
    return [place, text];
  }
}
