const sums = require('./lib/sums.js');
sums.add = (a, b) => a + b;
