// Money, moments and outcomes as people read them; numbers and durations are every page's.

import { known, LOCALE, NONE } from "./shared/format.js";

export { compact, count, ms, percent, seconds, tokensPerSecond } from "./shared/format.js";

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
