// Tells the host what `node --test` does, test by test. Runs in the runner's process, which loads none of the
// project's code: each test file has a process of its own.
import { connect } from 'node:net';
import { readFileSync, realpathSync } from 'node:fs';
import { isAbsolute, relative, resolve, sep } from 'node:path';

const settings = JSON.parse(readFileSync(new URL('./settings.json', import.meta.url)));
const MOST_DETAIL = 4000;
const MOST_NAME = 400;

function clean(text, most) {
  const whole = String(text).toWellFormed?.() ?? Buffer.from(String(text)).toString();
  if (whole.length <= most) return whole;
  const head = Math.floor(most / 4);
  return `${whole.slice(0, head)}\n[... ${whole.length - most} characters cut ...]\n${whole.slice(head - most)}`;
}

function shown(file) {
  if (!file) return null;
  let path = resolve(file);
  let workspace = settings.workspace;
  try { path = realpathSync(path); workspace = realpathSync(workspace); } catch { /* gone by now */ }
  const found = relative(workspace, path);
  return clean(found.startsWith('..') || isAbsolute(found) ? path : found.split(sep).join('/'), MOST_NAME);
}

function causeOf(error) {
  let inner = error;
  while (inner?.cause instanceof Error || (inner?.cause && typeof inner.cause === 'object')) inner = inner.cause;
  if (!inner || typeof inner !== 'object') return null;
  return {
    type: clean(inner.name ?? 'Error', 200),
    message: clean(inner.message ?? '', 500),
    name: null,
    file: shown(/\(?(?:file:\/\/)?(\/[^\s()]+?):\d+:\d+\)?$/m.exec(inner.stack ?? '')?.[1]),
  };
}

function detailOf(error) {
  let inner = error;
  while (inner?.cause && typeof inner.cause === 'object') inner = inner.cause;
  return String(inner?.stack ?? inner?.message ?? inner?.cause ?? inner ?? '');
}

export default async function* report(source) {
  const socket = connect(settings.socket);
  socket.on('error', () => {});
  const tell = (message) => socket.write(`${JSON.stringify(message)}\n`);
  const names = new Map();
  const printed = new Map();
  let isRed = false;
  tell({ kind: 'begin', runner: 'node' });
  for await (const { type, data } of source) {
    if (type === 'test:stderr' || type === 'test:stdout') {
      const before = printed.get(data.file) ?? '';
      printed.set(data.file, (before + data.message).slice(-MOST_DETAIL));
    } else if (type === 'test:start') {
      const path = names.get(data.file) ?? [];
      path.length = data.nesting;
      path[data.nesting] = data.name;
      names.set(data.file, path);
    } else if (type === 'test:pass' || type === 'test:fail') {
      isRed ||= type === 'test:fail' && data.todo === undefined;
      one(type, data, names, printed, tell);
    }
  }
  tell({ kind: 'end', exit: isRed ? 1 : 0 });
  await new Promise((done) => socket.end(done));
}

function one(type, data, names, printed, tell) {
  const error = data.details?.error;
  const kind = error?.failureType;
  const isSuite = data.details?.type === 'suite';
  if (kind === 'subtestsFailed' || (isSuite && type === 'test:pass' && data.skip === undefined)) return;
  const file = shown(data.file ?? data.name);
  // A file that could not be loaded, or in which no test was found, is reported as a test with its path as name.
  const isFile = data.nesting === 0 && shown(data.name) === file;
  const path = (names.get(data.file) ?? []).slice(0, data.nesting);
  // A suite whose hook failed stands for its tests, too: there is no result of it when all goes well.
  const id = isFile || isSuite ? file : `${file} > ${[...path, data.name].map((each) => clean(each, MOST_NAME)).join(' > ')}`;
  let outcome = type === 'test:pass' ? 'passed' : 'failed';
  if (data.skip !== undefined || data.todo !== undefined) outcome = 'skipped';
  else if (type === 'test:fail' && (isFile || isSuite || kind !== 'testCodeFailure')) outcome = 'error';
  const detail = outcome === 'passed' ? '' : [detailOf(error), isFile ? printed.get(data.file) ?? '' : ''].join('\n');
  const cause = type === 'test:fail' && !isFile ? causeOf(error) : null;
  tell({ kind: 'result', id: clean(id, 2 * MOST_NAME), outcome, file, detail: clean(detail, MOST_DETAIL), cause });
}
