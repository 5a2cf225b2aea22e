const test = require('node:test');
const assert = require('node:assert');
const sums = require('../lib/sums.js');
const { pairs } = require('./helper.js');

test('pairs', () => {
  for (const [a, b, total] of pairs) assert.strictEqual(sums.add(a, b), total);
});
