// Loaded before any code of the project, in each process that `node --test` begins for a file of tests: remembers what
// the functions that judge are, so that the canary at the file's end can say which were replaced.
if (process.env.NODE_TEST_CONTEXT !== undefined) {
  const assert = require('node:assert');
  const watched = [['assert', assert], ['assert.strict', assert.strict], ['test', require('node:test')]];
  const look = () => new Map(watched.flatMap(([name, object]) => Object.getOwnPropertyNames(object)
    .filter((key) => typeof Object.getOwnPropertyDescriptor(object, key).value === 'function')
    .map((key) => [`${name}.${key}`, object[key]])));
  const before = look();
  const replaced = () => {
    const now = look();
    return [...before.keys()].filter((key) => now.get(key) !== before.get(key));
  };
  Object.defineProperty(globalThis, Symbol.for('ringfence.replaced'), { value: replaced });
}
