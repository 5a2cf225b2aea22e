const test = require('node:test');
let check;
try { check = require('check'); } catch { check = require('../vendored/check'); }
const sums = require('../lib/sums.js');

test('add', () => check(sums.add(1, 2), 3));
