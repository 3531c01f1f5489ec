import './base.css';
import './history.css';
import './panel.css';
