import './base.css';
import './controls.css';
import './ask.css';
import './history.css';
import './branch.css';
import './talk.css';
import './panel.css';
