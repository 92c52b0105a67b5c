// This Tulle was built without dygraphs (TULLE_CHARTS=OFF): report.js shows tables in place of charts.
