// Numbers, money and times as people read them. An unknown value is a dash, never 0.

const LOCALE = "en-US";
const NONE = "–";
const whole = new Intl.NumberFormat(LOCALE);
const short = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumSignificantDigits: 3 });
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export const count = (value) => (known(value) ? whole.format(value) : NONE);
export const compact = (value) =>
  known(value) ? (Math.abs(value) < 10000 ? whole.format(value) : short.format(value)) : NONE;

export function percent(part, all) {
  if (!all) return NONE;
  const share = (100 * part) / all;
  return `${share.toLocaleString(LOCALE, { maximumFractionDigits: share < 10 ? 1 : 0 })} %`;
}

// Of exact nano-dollars; rounded where that says enough.
export function usd(nusd) {
  if (!known(nusd)) return NONE;
  const value = nusd / 1e9;
  if (value === 0) return "$0";
  if (value < 0.0000005) return "<$0.000001";
  if (value < 0.1) return `$${value.toFixed(6).replace(/0{1,4}$/, "")}`;
  return `$${value.toLocaleString(LOCALE, { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

// The same in a column, where small costs stand below each other.
export function usdInColumn(nusd) {
  const value = nusd / 1e9;
  return known(nusd) && value >= 0.0000005 && value < 1 ? `$${value.toFixed(6)}` : usd(nusd);
}

// Of nano-dollars per million tokens.
export const price = (nusd) =>
  known(nusd) ? `$${(nusd / 1e9).toLocaleString(LOCALE, { maximumFractionDigits: 4 })}` : NONE;

export function ms(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "0 ms";
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60000) return `${(value / 1000).toFixed(value < 10000 ? 2 : 1)} s`;
  return `${Math.floor(value / 60000)} min ${Math.round((value % 60000) / 1000)} s`;
}
export const seconds = (value) => (known(value) ? ms(1000 * value) : NONE);

export function tokensPerSecond(tokens, first, total) {
  const lasted = total - first;
  return known(tokens) && known(first) && known(total) && lasted > 5
    ? `${((1000 * tokens) / lasted).toFixed(0)} tokens/s`
    : NONE;
}

const two = (number) => String(number).padStart(2, "0");
export function clock(at, precise = true) {
  const date = new Date(1000 * at);
  const text = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return precise ? `${text}:${two(date.getSeconds())}` : text;
}
export const day = (at) =>
  new Date(1000 * at).toLocaleDateString(LOCALE, { month: "short", day: "numeric" });
export const utcDay = (at) =>
  new Date(1000 * at).toLocaleDateString(LOCALE, {
    month: "short",
    day: "numeric",
    timeZone: "UTC",
  });
export const moment = (at) => (known(at) ? `${day(at)}, ${clock(at)}` : NONE);
export function ago(ms_) {
  if (!known(ms_)) return NONE;
  const age = (Date.now() - ms_) / 1000;
  const steps = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
  ];
  const step = steps.find(([length]) => Math.abs(age) >= length) || [1, "s"];
  const words = `${Math.floor(Math.abs(age) / step[0])} ${step[1]}`;
  return age >= 0 ? `${words} ago` : `in ${words}`;
}

export const OUTCOMES = {
  answered: ["Answered", "good"],
  cut: ["Broke off", "bad"],
  failed: ["Failed", "bad"],
  refused: ["Refused", "warn"],
  client_gone: ["Client left", "quiet"],
};
