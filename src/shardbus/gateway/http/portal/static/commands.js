/** Commands of the command line, as they reach this bus. */

/** Whether the command line finds this bus without being told where it is. */
function isUsual() {
  return location.protocol === "http:" && location.port === "5300" && ["localhost", "127.0.0.1"].includes(location.hostname);
}

/** @param {string} text */
export function quoted(text) {
  return /^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command with its words, for a shell. @param {...string} words */
export function command(...words) {
  const address = isUsual() ? [] : ["--endpoint", location.origin];
  return ["shardbus", ...words, ...address].map(quoted).join(" ");
}
