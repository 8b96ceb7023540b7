"""What is on disk of a training: its log, its translations, its scores, and the leaderboard made of many."""
