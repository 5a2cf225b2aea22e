const test = require('node:test');
const assert = require('node:assert');
const sums = require('../lib/sums.js');

test('add', () => assert.strictEqual(sums.add(1, 2), 3));
test('more', () => assert.strictEqual(sums.add(2, 2), 4));
