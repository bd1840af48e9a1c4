// The words of flow filters: completion, the other direction, and a test for a value of a key.

/** Words that stand between tests. */
const JOINTS = ["and", "or", "not", "("];
/** Tests of one word. */
const BARE = ["tcp", "udp", "icmp", "icmpv6", "sctp", "gre", "esp", "ipv4", "ipv6", "nat"];
/** What a packet that goes the other way has in its place. */
const SWAPPED = [
  ["src", "dst"],
  ["src-port", "dst-port"],
  ["src-as", "dst-as"],
  ["ingress", "egress"],
  ["in", "out"],
  ["nat-src", "nat-dst"],
  ["nat-src-port", "nat-dst-port"],
];
/** Keys whose values a filter cannot test. */
const UNTESTED = ["drop"];

const swapWord = (word) => {
  const pair = SWAPPED.find((each) => each.includes(word));
  return pair ? pair[1 - pair.indexOf(word)] : word;
};

/** The filter of the other direction: sources are destinations. */
export const otherFilter = (text) =>
  text
    .split(/(\s+|[()<>=!&|])/)
    .map(swapWord)
    .join("");

/** The keys of the other direction. */
export const otherKey = (keys) => keys.split(",").map(swapWord).join(",");

/** The filter with a further test, which selects a value of a key; `null` if there is no such test. */
export function withTest(filter, key, value) {
  if (UNTESTED.includes(key) || value === null || value === undefined) return null;
  const test = `${key} ${value}`;
  return filter.trim() ? `(${filter.trim()}) and ${test}` : test;
}

/**
 * Completions of the last word. `words`: the server's keys and tests; `values(key)`: values seen lately, such as the
 * addresses of the present answer.
 */
export function complete(text, words, values) {
  const [, before, last] = /^(.*?)([^\s()]*)$/s.exec(text);
  const previous =
    before
      .trim()
      .split(/[\s()]+/)
      .at(-1) ?? "";
  const tests = [...new Set([...(words?.tests ?? []), ...BARE])];
  const wantsTest = previous === "" || JOINTS.includes(previous);
  const isBare = BARE.includes(previous);
  const put = (word, note) => ({ text: word, note, value: `${before}${word} ` });
  const fits = (word) => word.startsWith(last.toLowerCase()) && word !== last;
  if (wantsTest) return [...tests, "not"].filter(fits).map((word) => put(word, BARE.includes(word) ? "" : "test"));
  if (tests.includes(previous) && !isBare)
    return values(previous)
      .map(String)
      .filter(fits)
      .map((word) => put(word, "seen"));
  return ["and", "or"].filter(fits).map((word) => put(word, ""));
}
