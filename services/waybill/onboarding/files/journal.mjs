/**
 * Delivery records and what handlers write, in one file: a line per executed delivery, appended as a whole and flushed
 * before it is answered. A line is there or it is not, so record and effect are there together or not at all; a line
 * that a crash cut short is dropped at the next start. For one process; deliveries run one after the other.
 */
import { closeSync, existsSync, fsyncSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";

export function journalStore(path) {
  const text = existsSync(path) ? readFileSync(path, "utf8") : "";
  const whole = text.slice(0, text.lastIndexOf("\n") + 1);
  const file = openSync(path, "a");
  if (whole.length < text.length) ftruncateSync(file, Buffer.byteLength(whole));
  const lines = whole.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  let last = Promise.resolve();

  function alone(work) {
    const mine = last.then(work);
    last = mine.catch(() => undefined);
    return mine;
  }
  const find = ({ tenant, destination, deliveryId, operationId }) => {
    const ours = lines.filter((line) => line.tenant === tenant && line.destination === destination);
    return ours.find((line) => line.deliveryId === deliveryId) ?? ours.find((line) => line.operationId === operationId);
  };

  return {
    /** What handlers wrote, oldest first. */
    written: () => lines.flatMap((line) => line.written),
    close: () => closeSync(file),
    open: async () => undefined,
    transaction: (work) =>
      alone(async () => {
        const written = [];
        const journal = { write: (entry) => void written.push(entry), record: undefined };
        const result = await work(journal);
        if (journal.record !== undefined) {
          const line = { ...journal.record, written };
          writeSync(file, `${JSON.stringify(line)}\n`);
          fsyncSync(file);
          lines.push(line);
        }
        return result;
      }),
    claim: async (_, claim) => find(claim),
    async complete(journal, { tenant, destination, deliveryId, operationId, bodyDigest, operationDigest }, receipt) {
      journal.record = { tenant, destination, deliveryId, operationId, bodyDigest, operationDigest, receipt };
    },
    look: (claim) => alone(async () => find(claim)),
    purge: async () => 0,
  };
}
