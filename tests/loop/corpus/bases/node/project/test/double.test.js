const test = require('node:test');
const assert = require('node:assert');
const { double } = require('../lib/sums.js');

test('double', () => assert.strictEqual(double(2), 4));
