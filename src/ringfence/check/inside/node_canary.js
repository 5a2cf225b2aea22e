
;import('node:test').then(({ test }) => import('node:assert').then(({ default: assert }) => test('RINGFENCE', async () => {
  const ways = [
    () => { throw new Error('must fail'); },
    () => assert(false),
    () => assert.ok(false),
    () => assert.equal(1, 2),
    () => assert.strictEqual(1, 2),
    () => assert.notStrictEqual(1, 1),
    () => assert.deepEqual({ a: 1 }, { a: 2 }),
    () => assert.deepStrictEqual({ a: 1 }, { a: 2 }),
    () => assert.match('a', /b/),
    () => assert.fail(),
    () => assert.throws(() => {}),
    () => assert.rejects(Promise.resolve()),
    () => assert.strict.equal(1, 2),
    () => assert.strict.deepEqual([1], [2]),
  ];
  for (const way of ways) {
    try { await way(); } catch { continue; }
    return;
  }
  const replaced = globalThis[Symbol.for('ringfence.replaced')]?.() ?? [];
  throw new Error(`the canary fails, as it must (replaced: ${replaced.slice(0, 20).join(' ')})`);
})));
