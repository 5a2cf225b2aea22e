module.exports = require('node:assert').strictEqual;
